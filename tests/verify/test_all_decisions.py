"""Tests that verifiers read back each setting of a plan, or declare why they cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import emit_plan
from parc.compiler.verify.select_verifiers import framework_verifier, load_verifiers
from parc.compiler.verify.verify_settings import planned_value
from tests.compiled import (
    EXAMPLES,
    Files,
    example_files,
    example_targets,
    files_of,
    messages_of,
    plan_of,
)

MEGATRON = tuple(name for name in EXAMPLES if {"megatron", "slurm"} <= set(example_targets(name)))
LAUNCHED = tuple(
    name
    for name in EXAMPLES
    if {"slurm", "torchrun"} & set(example_targets(name))
    and "vllm" not in example_targets(name)
    and name not in MEGATRON
)
"""Other training examples that a launch script starts."""
OTHER_TARGETS = {"kubernetes", "slurm"}
"""Sections of ``problem.launch`` that only the target of the same name uses."""


ONLY_MEGATRON = ("omit", "profile", "tensorboard_dir", "wandb_project")
"""Settings of ``problem.launch`` for Megatron only; other frameworks warn about them (E13)."""


def leaves(value: Any, path: str) -> Iterator[str]:
    """Yield the path of each value below ``path`` that is not an object."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from leaves(one, f"{path}.{name}")
    else:
        yield path


def unread(name: str, *sections: str) -> list[str]:
    """Return the paths of an example's plan that no verifier of its targets reads or excludes."""
    return unread_in(example_files(name), *sections)


def unread_in(files: Files, *sections: str) -> list[str]:
    """Return the paths of the plan in ``files`` that no verifier reads or excludes."""
    plan = json.loads(files["plan.json"])
    verifiers = load_verifiers(dict(plan["problem"]["versions"]))
    framework = framework_verifier(verifiers, files)
    read: set[str] = set()
    for one in (framework, *(verifiers[target] for target in plan["problem"]["emit"])):
        if one is not None:
            read |= {decision.path for decision in one.derive_settings(files)} | set(
                one.not_in_files
            )
    paths = (path for one in sections for path in leaves(planned_value(plan, one), one))
    unused = tuple(f"problem.launch.{one}." for one in OTHER_TARGETS - set(plan["problem"]["emit"]))
    return [
        path
        for path in paths
        if not path.startswith(unused)
        and not any(path == one or path.startswith(f"{one}.") for one in read)
    ]


@pytest.mark.parametrize("name", MEGATRON)
def test_each_setting_of_a_megatron_plan_is_read_back(name: str) -> None:
    assert unread(name, "layout", "problem.job", "problem.model", "problem.launch") == []


@pytest.mark.parametrize("name", LAUNCHED)
def test_each_launch_setting_is_read_back(name: str) -> None:
    only_megatron = tuple(f"problem.launch.{one}" for one in ONLY_MEGATRON)
    assert [path for path in unread(name, "problem.launch") if path not in only_megatron] == []


REGISTERED = {
    "parc": 1,
    "name": "registered",
    "cluster": {"node": "dgx-h100", "nodes": 32},
    "job": {"sequence_length": 2048, "global_batch": 256},
    "emit": ["torchtitan", "rankmap"],
}
"""Spec of a job whose model torchtitan takes from its registry."""


@pytest.mark.parametrize(
    "model", ["qwen3-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "deepseek-v2", "deepseek-v3"]
)
def test_each_field_of_a_registered_model_is_read_back(model: str) -> None:
    assert unread_in(files_of({**REGISTERED, "model": model}), "problem.model") == []


def test_a_feature_that_the_registered_model_has_not_is_named() -> None:
    plan = plan_of({**REGISTERED, "model": "qwen3-8b"})
    model = plan.problem.model
    position = replace(model.position, base=500000.0)
    problem = replace(plan.problem, model=replace(model, position=position))
    sink = Sink()
    emit_plan(replace(plan, problem=problem), sink)
    # torchtitan's plain decoder, which is emitted for unregistered models, has no such norm.
    assert "does not set it (meaning 'none'), the plan has 'head'" in " ".join(messages_of(sink))
