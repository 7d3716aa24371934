"""The verifiers contain the digests of the programs that PARC emits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import cast

import pytest

from parc.backends.ray.verify import code_without_settings
from parc.backends.registry import (
    backend,
    backend_declaration,
    engine,
    framework,
    serving_backend,
)
from parc.backends.torchtitan.verify_module import read_module
from parc.compiler.ir import LoraAdapters, Plan, ServingPlan
from parc.compiler.verify.program_code import ProgramDigest, code_digest, parse_program
from tests.backends.torch.specs import valid_spec
from tests.compiled import ROOT, Files, example, plan_of

EMITTED_BY = {
    "fsdp": ("llama-3-8b-fsdp",),
    "deepspeed": ("llama-65b-pipeline",),
    "accelerate": ("llama-3-8b-accelerate",),
    "megatron-bridge": ("qwen3-30b-a3b-megatron-bridge",),
}
"""Backend -> examples that have its programs, except for those of ``launch.program``."""
WORDS = {
    "fsdp": ("decoder", "transformers"),
    "deepspeed": ("decoder", "transformers"),
    "accelerate": ("transformers", "trainer"),
    "megatron-bridge": (),
}
"""Backend -> values of ``launch.program`` that name an emitted program."""


def plans_of(backend: str) -> Iterator[Plan]:
    """Yield plans whose files are all programs of ``backend``."""
    for name in EMITTED_BY[backend]:
        plan = cast(Plan, example(name))
        yield plan
        for word in WORDS[backend]:
            launch = replace(plan.problem.launch, program=word)
            yield replace(plan, problem=replace(plan.problem, launch=launch))
        if "lora" in framework(plan.problem.framework).strategies:
            lora = LoraAdapters(8, 16, 0.0, ("q_proj",))
            job = replace(plan.problem.job, lora=lora)
            launch = replace(plan.problem.launch, program="transformers")
            yield replace(plan, problem=replace(plan.problem, job=job, launch=launch))


def programs_of(backend: str) -> Files:
    """Return the Python files that ``backend`` emits, before they are verified."""
    artifacts = (one for plan in plans_of(backend) for one in framework(backend).emit(plan))
    return {one.path: one.text for one in artifacts if one.path.endswith(".py")}


def titan_variants() -> dict[str, ProgramDigest]:
    """Return the digests of all variants of torchtitan's module, without its settings."""
    found = {}
    for model in ("llama-3-8b", "qwen3-8b"):
        for pp, load in product((1, 2), (None, "/base")):
            spec = valid_spec("torchtitan", 3) | {"model": model, "layout": {"pp": pp}}
            spec["job"] = spec["job"] | {"load_dir": load}
            (artifact,) = framework("torchtitan").emit(plan_of(spec))
            module = read_module(artifact.text)
            found[module.variant] = code_digest(module.code)
    return found


def ray_program() -> dict[str, ProgramDigest]:
    """Return the digest of Ray's program without its settings."""
    plan = cast(ServingPlan, example("llama-3.1-405b-serve"))
    (artifact,) = serving_backend("ray").emit_serving(plan)
    entry = engine(plan.problem.framework).ray_entry
    assert entry is not None
    names = (entry.program, entry.module, entry.bundle_variable)
    return {artifact.path: code_digest(code_without_settings(artifact.text, names))}


def preflight_programs() -> dict[str, str]:
    """Return the Python files of the preflight check."""
    artifacts = backend("preflight").emit(cast(Plan, example("llama-3-8b-fsdp")))
    return {one.path: one.text for one in artifacts if one.path.endswith(".py")}


def digests_of(name: str) -> dict[str, ProgramDigest]:
    """Return file or variant -> digests of the programs that a backend emits."""
    if name == "torchtitan":
        return titan_variants()
    if name == "ray":
        return ray_program()
    programs = preflight_programs() if name == "preflight" else programs_of(name)
    return {file: code_digest(parse_program(file, text), text) for file, text in programs.items()}


@pytest.mark.parametrize("name", [*EMITTED_BY, "torchtitan", "ray", "preflight"])
def test_a_verifier_has_the_digest_of_each_emitted_program(
    name: str, pytestconfig: pytest.Config
) -> None:
    package = backend_declaration(name).package.removeprefix("parc.")
    stored = ROOT / package.replace(".", "/") / "verify_programs.json"
    found = {file: asdict(digest) for file, digest in digests_of(name).items()}
    if pytestconfig.getoption("--update-golden"):
        stored.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", "utf-8")
    known = json.loads(Path(stored).read_text("utf-8"))
    assert found == known, (
        "the template of a program has changed: review the emitted program, then run "
        "pytest tests/verify/test_program_digests.py --update-golden"
    )
