"""The verifiers contain the digests of the programs that PARC emits."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from parc.backends.registry import framework
from parc.backends.torchtitan.verify_module import read_module
from parc.compiler.verify.program_code import ProgramDigest, code_digest, program_digest
from tests.backends.torch.specs import valid_spec
from tests.compiled import ROOT, Files, example, plan_of

EMITTED_BY = {
    "fsdp": ("llama-3-8b-fsdp",),
    "deepspeed": ("llama-65b-pipeline",),
    "accelerate": ("llama-3-8b-accelerate",),
}
"""Backend -> examples that have all of its programs."""


def programs_of(backend: str) -> Files:
    """Return the Python files that ``backend`` emits, before they are verified."""
    plans = (example(name) for name in EMITTED_BY[backend])
    artifacts = (one for plan in plans for one in framework(backend).emit(plan))
    return {one.path: one.text for one in artifacts if one.path.endswith(".py")}


def titan_variants() -> dict[str, ProgramDigest]:
    """Return the digests of all variants of torchtitan's module, without its settings."""
    found = {}
    for model in ("llama-3-8b", "qwen3-8b"):
        for pp in (1, 2):
            spec = valid_spec("torchtitan", 3) | {"model": model, "layout": {"pp": pp}}
            (artifact,) = framework("torchtitan").emit(plan_of(spec))
            module = read_module(artifact.text)
            found[module.variant] = code_digest(module.code)
    return found


def digests_of(backend: str) -> dict[str, ProgramDigest]:
    """Return file or variant -> digests of the programs that ``backend`` emits."""
    if backend == "torchtitan":
        return titan_variants()
    return {name: program_digest(name, text) for name, text in programs_of(backend).items()}


@pytest.mark.parametrize("backend", [*EMITTED_BY, "torchtitan"])
def test_a_verifier_has_the_digest_of_each_emitted_program(
    backend: str, pytestconfig: pytest.Config
) -> None:
    file = ROOT / "backends" / backend / "verify_programs.json"
    found = {name: asdict(digest) for name, digest in digests_of(backend).items()}
    if pytestconfig.getoption("--update-golden"):
        file.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", "utf-8")
    known = json.loads(Path(file).read_text("utf-8"))
    assert found == known, (
        "the template of a program has changed: review the emitted program, then run "
        "pytest tests/verify/test_program_digests.py --update-golden"
    )
