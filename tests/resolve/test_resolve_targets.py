"""Targets of a spec: defaults, targets of another kind of job, and a second framework."""

from __future__ import annotations

from typing import Any

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


def test_a_second_framework_is_refused() -> None:
    assert codes(["megatron", "rankmap", "deepspeed"]) == ["X22"]


def test_a_front_and_the_framework_that_it_starts_are_one_framework() -> None:
    targets = resolve_targets(spec(["accelerate", "deepspeed"]), Sink())
    assert targets is not None
    assert targets.framework == "deepspeed"


def test_a_target_of_another_kind_of_job_is_refused() -> None:
    assert codes(["megatron", "vllm"]) == ["X21"]
