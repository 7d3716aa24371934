"""Tests that each value of a serving plan is read by a verifier, or has a reason not to be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from parc.compiler.verify.select_verifiers import load_verifiers
from tests import compiled
from tests.compiled import Files
from tests.verify.edited.test_edits_kubernetes import files_of as manifests_of
from tests.verify.edited.test_edits_serving import files_of, ray_files

SECTIONS = (
    *("layout", "limits", "placement"),
    *("problem.endpoint", "problem.goals", "problem.model", "problem.pins", "problem.service"),
    *("problem.launch.args", "problem.launch.env", "problem.launch.master_port"),
    *("problem.launch.network_interface", "problem.launch.program"),
)
"""Sections of plan.json that the files of a serving job must show."""
EMITTED: dict[str, Callable[[], Files]] = {
    "several hosts": lambda: files_of("deep", "vllm"),
    "load balancer": lambda: files_of("external", "vllm"),
    "one host": lambda: files_of("single", "vllm"),
    "ray": lambda: ray_files("deep"),
    "kubernetes": lambda: manifests_of("engines")[0],
}
MORE_SECTIONS = {"kubernetes": ("problem.launch.kubernetes",)}


def leaf_paths(value: Any, path: str) -> Iterator[str]:
    """Yield the dotted path of each leaf of a JSON tree."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaf_paths(item, f"{path}.{key}")
    else:
        yield path


def covers(known: set[str], path: str) -> bool:
    return any(path == one or path.startswith(f"{one}.") for one in known)


@pytest.mark.parametrize("name", EMITTED)
def test_the_decisions_of_a_serving_job_cover_its_plan(name: str) -> None:
    files, more = EMITTED[name](), MORE_SECTIONS.get(name, ())
    plan = json.loads(files["plan.json"])
    verifiers = [load_verifiers(())[target] for target in plan["problem"]["emit"]]
    read = {one.path for verifier in verifiers for one in verifier.derive_settings(files)}
    # Ray starts the engine without the engine's own script.
    engine = load_verifiers(())[plan["problem"]["framework"]]
    reasons = {path for verifier in (*verifiers, engine) for path in verifier.not_in_files}
    paths = [path for section in SECTIONS + more for path in leaf_paths(at(plan, section), section)]
    assert len(paths) > 80
    assert [path for path in paths if not covers(read | reasons, path)] == []
    stale = [path for path in reasons if not any(covers({path}, one) for one in all_paths(plan))]
    assert stale == [], "not_in_files names a path that no plan has"


def at(plan: Any, section: str) -> Any:
    for name in section.split("."):
        plan = plan[name]
    return plan


def all_paths(plan: Any) -> list[str]:
    found = [path for key in plan for path in leaf_paths(plan[key], key)]
    # Only plans of training jobs have this section.
    return [*found, "problem.job"]


def test_a_plan_without_an_emitted_setting_is_not_covered() -> None:
    files = EMITTED["one host"]()
    (verifier,) = (load_verifiers(())[name] for name in ("vllm",))
    read = {one.path for one in verifier.derive_settings(files)}
    assert not covers(read | set(verifier.not_in_files), "layout.new_field")
    assert compiled.verification_codes(files) == set()
