"""Plans as cases for Megatron-Core, and the checking program that runs it in a separate process."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parc.backends.megatron.arguments.arguments import planned_arguments
from parc.backends.megatron.arguments.environment import variables_for_layout
from parc.backends.megatron.capabilities import DEFAULT_VERSION
from parc.backends.megatron.stages.split import SplitPins, find_split
from parc.backends.registry import framework
from parc.compiler.ir import Layout, ModelChunk, PipelineSplit, Plan, Problem
from tests.compiled import Spec, planned, resolved
from tests.conformance.checker_processes import run_cases
from tests.every_layout import enumerate_layouts

CHECKER = Path(__file__).with_name("megatron_checker.py")
Case = dict[str, Any]
Verdict = dict[str, Any]


def checker_command(version: str = DEFAULT_VERSION) -> list[str]:
    """Return the command of the checking program with the paths that tests/conformance/run sets."""
    return [os.environ["PARC_CONFORMANCE_PYTHON"], str(CHECKER), folder_of(version)]


def folder_of(version: str) -> str:
    """Return the folder with a version of Megatron-Core; skip the test if it does not exist."""
    if version == DEFAULT_VERSION:
        return os.environ["PARC_CONFORMANCE_MEGATRON"]
    folder = Path(os.environ.get("PARC_CONFORMANCE_MEGATRON_VERSIONS", ""), version)
    if not (folder / "megatron").is_dir():
        pytest.skip(f"no Megatron-Core {version} in PARC_CONFORMANCE_MEGATRON_VERSIONS")
    return str(folder)


def megatron_verdicts(cases: list[Case], version: str = DEFAULT_VERSION) -> dict[str, Verdict]:
    """Return the verdict by name of the case."""
    return {verdict["name"]: verdict for verdict in run_cases(checker_command(version), cases)}


@cache
def parsed_flags(version: str = DEFAULT_VERSION) -> dict[str, dict[str, Any]]:
    """Return the rows of the real parser's flags by spelling."""
    verdicts = megatron_verdicts([{"name": "flags", "flags": True}], version)
    return {row["flag"]: row for row in verdicts["flags"]["flags"]}


def case_of(name: str, problem: Problem, layout: Layout, world: int) -> Case:
    """Return the arguments and environment of the launch script."""
    if problem.job.checkpoint_interval is None:  # a plan has one
        problem = replace(problem, job=replace(problem.job, checkpoint_interval=100))
    argv = [word for a in planned_arguments(problem, layout) for word in (a.flag, *a.values)]
    gpu = problem.cluster.gpu
    return {
        "name": name,
        "argv": argv,
        "world_size": world,
        "env": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            **dict(variables_for_layout(gpu, layout)),
        },
        "arch": gpu.compute_capability[0],
        "ranks": sorted({0, world // 2, world - 1}),
    }


def layout_as_pinned(problem: Problem) -> Layout | None:
    """Return the layout with the pinned sizes, valid or not."""
    first = next(enumerate_layouts(problem, framework("megatron")), None)
    if first is None:
        return None
    layout = first[0]
    if find_split(problem, layout.pp, layout.vpp) is None:
        layout = replace(layout, split=split_as_pinned(problem, layout.pp, layout.vpp))
    return layout


def split_as_pinned(problem: Problem, pp: int, vpp: int) -> PipelineSplit:
    """Return a split that passes the pins to Megatron although no valid split exists."""
    pins = SplitPins.from_pins(problem.pins)
    if pins.text is not None:
        return PipelineSplit("string", False, False, pins.text, ())
    if pins.first or pins.last:
        each = problem.model.layers // pp
        counts = [pins.first or each, *[each] * (pp - 2), pins.last or each][:pp]
        chunks = tuple((ModelChunk(0, count, False, 0, False),) for count in counts)
        return PipelineSplit("first-last", False, False, "", chunks)
    if pins.embedding or pins.loss:
        return PipelineSplit("counted", bool(pins.embedding), bool(pins.loss), "", ())
    return PipelineSplit("even", False, False, "", ())


def case_as_pinned(name: str, problem: Problem, layout: Layout, world: int) -> Case:
    """Return ``case_of`` with the flags for the ends of the pipeline exactly as pinned."""
    case = case_of(name, problem, layout, world)
    if find_split(problem, layout.pp, layout.vpp) is None:
        pins, argv = problem.pins, case["argv"]
        for flag, value in (("first", pins.first_stage_layers), ("last", pins.last_stage_layers)):
            word = f"--decoder-{flag}-pipeline-num-layers"
            if word in argv:
                del argv[argv.index(word) : argv.index(word) + 2]
            if value is not None:
                argv += [word, str(value)]
    return case


def rejected_as_pinned(specs: list[Spec]) -> tuple[dict[str, Verdict], dict[str, str]]:
    """Check specs with their pinned sizes and return (verdicts of specs that Megatron rejects,
    errors of those that PARC accepts).
    """
    cases, rejected_by_parc = [], {}
    for number, spec in enumerate(specs):
        problem, _ = resolved(spec)
        layout = layout_as_pinned(problem) if isinstance(problem, Problem) else None
        if not isinstance(problem, Problem) or layout is None:
            continue
        name = f"variation {number}"
        # pinned sizes may exceed the cluster; only existing ranks are started
        cases.append(case_as_pinned(name, problem, layout, min(layout.world, problem.cluster.gpus)))
        plan, sink = planned(spec)
        rejected_by_parc[name] = plan is None and sink.failed()
    rejected = {name: one for name, one in megatron_verdicts(cases).items() if not one["accepted"]}
    return rejected, {n: one["error"] for n, one in rejected.items() if not rejected_by_parc[n]}


def planned_groups(plan: Plan, rank: int) -> dict[str, list[int]]:
    """Return the groups of one rank by PARC's meshes, under the names of the checking program."""
    # initialize_model_parallel has no function that returns these two.
    unnamed = {"tp-dp", "tp-dp-cp"}
    found = {}
    for one in plan.placement.families:
        if one.name not in unnamed:
            groups = plan.placement.mesh(one.mesh).groups_along(*one.axes)
            found[one.name] = next(group for group in groups if rank in group)
    return found
