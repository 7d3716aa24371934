"""Targets of a spec: what does another kind of job, and a second framework."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends import registry
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_targets import resolve_targets
from parc.compiler.spec.spec import Spec


def spec(emit: list[str] | None) -> Spec:
    written: dict[str, Any] = {
        "parc": 1,
        "name": "run",
        "model": "llama-3-8b",
        "cluster": {"node": "dgx-h100", "nodes": 1},
        "job": {"sequence_length": 8192, "global_batch": 64},
    }
    return Spec.model_validate(written | ({} if emit is None else {"emit": tuple(emit)}))


def codes(emit: list[str] | None) -> list[str]:
    sink = Sink()
    resolve_targets(spec(emit), sink)
    return [one.code.removeprefix("PARC-") for one in sink.diagnostics]


def test_a_training_job_gets_its_usual_targets_where_none_are_named() -> None:
    targets = resolve_targets(spec(None), Sink())
    assert targets is not None
    assert targets.emit == ("megatron", "preflight", "rankmap", "slurm", "torchrun")
    assert targets.framework == "megatron"


def test_a_second_framework_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FRAMEWORKS", ("megatron", "torchrun"))
    assert codes(["megatron", "rankmap", "torchrun"]) == ["X22"]


def test_a_target_of_another_kind_of_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {name: path for name, path in registry.TRAINING.items() if name != "slurm"}
    monkeypatch.setattr(registry, "TRAINING", others)
    assert codes(["megatron", "slurm"]) == ["X21"]
