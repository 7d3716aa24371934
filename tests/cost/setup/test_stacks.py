"""Efficiency rows of a framework's stack of kernels, from the catalog or from its backend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.step.step_time import waited_hops
from parc.compiler.ir import Efficiency, KernelStack, Plan
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


def test_a_stack_sets_its_own_properties_on_every_generation() -> None:
    stack = KernelStack("torch-native", properties={"blocking_hops": True})
    for name in ("ampere", "hopper"):
        found, plain = (
            stack.efficiency_for(generation(name)),
            efficiency_row(f"{name}/torch-native"),
        )
        assert found == replace(plain, blocking_hops=True) != plain
    assert stack.efficiency_for(replace(generation("ampere"), efficiency={})) is None


def test_pipelines_of_deepspeed_wait_for_every_message() -> None:
    plan = compiled.example("llama-65b-pipeline")
    assert isinstance(plan, Plan)
    cost_model = cost_model_for(plan.problem, framework("deepspeed"))
    pp, count = plan.layout.pp, plan.layout.micro_batches(plan.problem.job.global_batch)
    assert pp > 2
    assert waited_hops(cost_model, pp, 1, count) == 4 * count + 2 * (pp - 1)


def test_kernels_are_as_fast_as_in_a_benchmark_only_on_a_single_gpu() -> None:
    rows = {}
    for gpus in (1, 2):
        cluster = {"node": {"base": "dgx-h100", "gpus_per_node": gpus}, "nodes": 1}
        spec = {**SPEC, "model": "llama-3.2-1b", "cluster": cluster, "layout": {}}
        problem = compiled.plan_of(spec).problem
        rows[gpus] = cost_model_for(problem, framework("megatron")).efficiency
    assert (rows[1].gemm, rows[1].gemm_low) == (1.0, 1.0)
    assert rows[2].gemm == efficiency_row("hopper/any-stack").gemm > 1.0
    assert rows[1] == replace(rows[2], gemm=1.0, gemm_low=1.0, attention=1.0)
