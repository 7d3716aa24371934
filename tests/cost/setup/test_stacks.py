"""Efficiency rows of a framework's stack of kernels, from the catalog or from its backend."""

from __future__ import annotations

import pytest

from parc.backends.registry import framework
from parc.compiler.ir import Efficiency, KernelStack
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests import compiled
from tests.generations import efficiency_row, generation

SPEC = {
    "parc": 1,
    "name": "stacks",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 2, "pp": 1, "cp": 1, "micro_batch": 1},
}
OWN = Efficiency(gemm=1.5)


def test_a_framework_is_evaluated_with_the_row_of_its_stack() -> None:
    problem = compiled.plan_of(SPEC).problem
    for name, stack in (("megatron", "transformer-engine"), ("fsdp", "torch-eager")):
        row = cost_model_for(problem, framework(name)).efficiency
        assert row == efficiency_row(f"hopper/{stack}")


def test_efficiency_rows_of_a_backend_replace_those_of_the_catalog() -> None:
    own = KernelStack("torch-native", rows={"hopper": OWN})
    assert own.efficiency_for(generation("hopper")) == OWN
    assert own.efficiency_for(generation("ampere")) == efficiency_row("ampere/torch-native")


def test_a_stack_without_a_row_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = framework("megatron")
    monkeypatch.setattr(type(target), "stack", KernelStack("mine", rows={"ampere": OWN}))
    _, sink = compiled.planned(SPEC)
    (found,) = sink.diagnostics
    assert (found.code, found.path) == ("PARC-K08", "cluster.gpu")
    assert found.finding.message == (
        "generations/hopper.yaml: efficiency.mine is missing, but megatron needs this section"
    )
    monkeypatch.setattr(type(target), "stack", KernelStack("mine", rows={"hopper": OWN}))
    assert compiled.plan_of(SPEC).estimate.time.total_seconds > 0
