"""Values of ``launch.env`` with blanks, comment signs and newlines reach processes unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.verify.verify_pools import verify_output
from tests import compiled
from tests.compiled import verification_codes

VALUES = (
    *("a \nb", "a\n b", "a\t\nb", "a\n\nb", "\na", "a\n", " a ", "a # b\n# c\n", "a\\\nb"),
    *("it's \n'x'", 'say "x" \n', "$HOME \n`x`", "- a: b \n  c", "\u00e9 \nb"),
)
JOBS: dict[str, dict[str, Any]] = {
    "training": {
        "job": {"sequence_length": 2048, "global_batch": 64},
        "layout": {"tp": 1, "pp": 1},
    },
    "service": {
        "job": {"kind": "serve", "traffic": {"input_tokens": 500, "output_tokens": 50}},
        "layout": {"tp": 1, "replicas": 1},
    },
}
TARGETS = (
    *(("training", emit) for emit in ("megatron torchrun slurm kubernetes", "fsdp torchrun")),
    *(("training", emit) for emit in ("deepspeed", "torchtitan slurm", "accelerate kubernetes")),
    *(("service", emit) for emit in ("vllm ray", "vllm slurm kubernetes", "sglang kubernetes")),
    ("service", "tensorrt-llm slurm"),
)


def spec_with(values: dict[str, str], job: str, emit: str) -> dict[str, Any]:
    head = {"parc": 1, "name": "values", "model": "llama-3-8b", **JOBS[job]}
    launch = {"env": values, "kubernetes": {"image": "registry.example/image:1"}}
    cluster = {"node": "dgx-h100", "nodes": 1}
    return {**head, "cluster": cluster, "emit": emit.split(), "launch": launch}


@pytest.mark.usefixtures("few_requests")
@pytest.mark.parametrize(("job", "emit"), TARGETS, ids=[emit for _, emit in TARGETS])
def test_every_value_is_emitted_and_verified(job: str, emit: str) -> None:
    values = {f"VALUE{number}": value for number, value in enumerate(VALUES)}
    plan, sink = compiled.planned(spec_with(values, job, emit))
    assert plan is not None, compiled.messages_of(sink)
    verified = Sink()
    verify_output(compiled.emitted(plan), verified)
    assert compiled.messages_of(verified) == []


@pytest.mark.usefixtures("few_requests")
def test_a_blank_that_is_removed_from_a_value_is_found() -> None:
    for job, emit in (("training", "fsdp torchrun"), ("service", "vllm")):
        plan, _ = compiled.planned(spec_with({"VALUE": "a \nb"}, job, emit))
        assert plan is not None
        files = compiled.emitted(plan)
        edited = {path: text.replace("'a \nb'", "'a\nb'") for path, text in files.items()}
        assert edited != files
        assert "A14" in verification_codes(edited)
