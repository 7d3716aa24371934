"""Emitted files refer only to files that are emitted, with every set of targets.

A name counts as a reference if some set of targets emits a file with this name or path. A sample of
the sets is tried here; a test of the conformance suite tries all sets.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from random import Random

import pytest

from parc.backends.built_in import BUILT_IN
from parc.backends.registry import built_in_backends
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan
from parc.compiler.pipeline import emit_plan
from tests.compiled import Files, Spec, changed, planned

pytestmark = pytest.mark.usefixtures("few_requests")
TRAIN: Spec = {
    "parc": 1,
    "name": "run",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 4096, "global_batch": 64, "checkpoint_dir": "/ck"},
    "launch": {"kubernetes": {"image": "registry.example.com/train:1"}},
}
SERVE: Spec = {
    **TRAIN,
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 1000, "output_tokens": 200, "concurrency": 64},
    },
}
FRAMEWORKS = tuple(one.name for one in built_in_backends("framework"))
ENGINES = tuple(one.name for one in built_in_backends("engine"))
OTHERS = tuple(one.name for one in BUILT_IN if one.name not in (*FRAMEWORKS, *ENGINES))
STARTED_BY_OTHERS = {"accelerate": "deepspeed"}
"""Target -> framework that it can start."""
VARIANTS: tuple[Spec, ...] = (
    {},
    {"model": "gemma-2-9b", "job.load_dir": "/base"},
    {"cluster.nodes": None, "cluster.racks": [{"name": "r", "nodes": "n[1-2]"}]},
)
ELSEWHERE = {
    # The config of a Hugging Face checkpoint.
    "config.json": (
        *("accelerate/start.py", "deepspeed/start.py", "fsdp/start.py"),
        "kubernetes/jobset.yaml",
    ),
}
"""File name -> files in which it means a file that PARC does not emit."""
SAMPLED = (8, 2, 2)
"""Variant -> number of sets of targets per framework or engine that the sample contains, besides
the framework or engine alone."""


def emit_lists(main: str, most: int) -> list[tuple[str, ...]]:
    """Return the targets ``main`` alone, and with up to ``most`` other ones."""
    # Ray starts only services.
    others = [one for one in OTHERS if main in ENGINES or one != "ray"]
    found = [(main, *more) for count in range(most + 1) for more in combinations(others, count)]
    if inner := STARTED_BY_OTHERS.get(main):
        found += [(main, inner, *more) for more in ((), *((one,) for one in others))]
    return found


def _files(plan: AnyPlan, emit: tuple[str, ...]) -> Files:
    """Return the files of ``plan`` with the targets ``emit`` alone.

    They are not verified here: test_plan_laws.py does so for any choice of targets. The report,
    which takes most of the time, is written only if no other target hides a wrong reference.
    """
    part = replace(plan, problem=replace(plan.problem, emit=emit))
    artifacts = emit_plan(part, Sink(), report=len(emit) == 1, verify=False)
    return {one.path: one.text for one in artifacts}


@cache
def outputs(main: str, complete: bool) -> dict[tuple[tuple[str, ...], int], Files]:
    """Return (targets, variant) -> files of the sampled sets that are valid, or of all sets."""
    found = {}
    for variant, changes in enumerate(VARIANTS):
        base = SERVE if main in ENGINES else TRAIN
        if main in ENGINES:
            changes = {path: value for path, value in changes.items() if path != "job.load_dir"}
        # All pairs with the first variant only, because the others emit few other files.
        alone, *lists = emit_lists(main, 1 if variant else 2)
        if not complete:
            lists = Random(f"{main} {variant}").sample(lists, SAMPLED[variant])
        lists.insert(0, alone)
        if main in ENGINES:
            # Services have few valid lists, and no list of all targets is one of them.
            wholes = {emit: [emit] for emit in lists}
        else:
            # One plan for all targets, of which each list emits a part.
            inner = [one for one in STARTED_BY_OTHERS.values() if one in {*sum(lists, ())} - {main}]
            launchers = tuple(one for one in OTHERS if one != "ray")
            wholes = {
                (main, *started, *launchers): [
                    emit for emit in lists if set(emit) & set(inner) == set(started)
                ]
                for started in ((), *((one,) for one in inner))
            }
        for whole, parts in wholes.items():
            plan, sink = planned(changed(base, {**changes, "emit": list(whole)}))
            if plan is not None and not sink.failed():
                found |= {(emit, variant): _files(plan, emit) for emit in parts}
    return found


def emitted_paths(complete: bool = False) -> set[str]:
    """Return the paths of all files that the sampled sets emit, or all sets."""
    mains = (*FRAMEWORKS, *ENGINES)
    return {path for one in mains for files in outputs(one, complete).values() for path in files}


@cache
def references() -> re.Pattern[str]:
    """Return a pattern of the names and paths of all files that PARC emits."""
    found = emitted_paths()
    names = {path.rpartition("/")[2] for path in found}
    words = sorted((re.escape(one) for one in names if "." in one), key=len, reverse=True)
    paths = sorted((re.escape(one) for one in found if "/" in one), key=len, reverse=True)
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(paths)}|{'|'.join(words)})(?![\w-]|\.\w)")


def dangling(files: Files) -> list[str]:
    """Return the references in ``files`` to files that other targets would emit."""
    found = []
    for path, text in files.items():
        # The ConfigMap of a manifest contains files of other targets.
        inside = re.findall(r"\n *path: (\S+)", text) if path.startswith("kubernetes/") else ()
        paths_here = {*files, *inside}
        names_here = {one.rpartition("/")[2] for one in paths_here}
        found += [
            f"{path} refers to {word}"
            for word in dict.fromkeys(references().findall(text))
            if word not in (paths_here if "/" in word else names_here)
            and path not in ELSEWHERE.get(word, ())
        ]
    return found


def wrong_references(found: dict[tuple[tuple[str, ...], int], Files]) -> dict[str, list[str]]:
    """Return targets -> references to files that these targets do not emit."""
    return {",".join(emit): bad for (emit, _), files in found.items() if (bad := dangling(files))}


@pytest.mark.parametrize("main", [*FRAMEWORKS, *ENGINES])
def test_emitted_files_refer_only_to_emitted_files(main: str) -> None:
    found = outputs(main, False)
    assert found
    assert wrong_references(found) == {}


@pytest.mark.conformance
@pytest.mark.parametrize("main", [*FRAMEWORKS, *ENGINES])
def test_files_of_all_sets_of_targets_refer_only_to_emitted_files(main: str) -> None:
    assert wrong_references(outputs(main, True)) == {}


@pytest.mark.conformance
def test_the_sampled_sets_emit_every_file() -> None:
    assert emitted_paths(complete=True) == emitted_paths()


def test_a_reference_to_a_file_of_another_target_is_found() -> None:
    files = outputs("fsdp", False)[("fsdp",), 0]
    assert dangling({**files, "fsdp/x.py": "# run torchrun/launch.sh or job.sbatch\n"}) == [
        "fsdp/x.py refers to torchrun/launch.sh",
        "fsdp/x.py refers to job.sbatch",
    ]
