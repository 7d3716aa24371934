"""Action tables equal those of torch.distributed.pipelining and the order of Megatron-Core."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.table import PipelineShape

pytestmark = pytest.mark.conformance
CHECKER = Path(__file__).with_name("schedules_checker.py")
NAMES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zb-h1": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
CHUNKS = {"interleaved": (2, 3), "zb-h1": (1, 2), "zb-v": (2,), "dualpipe-v": (2,)}
RANKS = (1, 2, 3, 4, 6, 8)
Case = tuple[str, str, PipelineShape]


def torch_group(ranks: int, micro_batches: int) -> int:
    """Return the group size that torch uses: it splits a step into m // p equal rounds."""
    return micro_batches // max(1, micro_batches // ranks)


def torch_cases() -> list[Case]:
    return [
        ("torch", name, PipelineShape(ranks, m, chunks, torch_group(ranks, m)))
        for name in NAMES
        for chunks in CHUNKS.get(name, (1,))
        for ranks in RANKS
        for m in sorted({1, ranks - 1, ranks, ranks + 1, 2 * ranks, 2 * ranks + 3, 4 * ranks} - {0})
    ]


def megatron_cases() -> list[Case]:
    interleaved = [
        ("megatron", "interleaved", PipelineShape(ranks, whole * group + rest, chunks, group))
        for ranks in RANKS[1:]  # on one rank Megatron-Core runs its loop without a pipeline
        for chunks in (2, 3)
        for group in (ranks, ranks + 1, 2 * ranks)
        for whole in (1, 2, 4)
        for rest in (0, ranks, group - 1)
        if not 0 < rest % group < ranks
    ]
    plain = [
        ("megatron", "1f1b", PipelineShape(p, m, 1, p)) for p in RANKS for m in (1, p, 2 * p + 1)
    ]
    return interleaved + plain


def run_checker(cases: list[Case]) -> list[dict[str, Any]]:
    lines = "".join(
        json.dumps(
            {
                "tool": tool,
                "schedule": NAMES[name],
                "ranks": shape.ranks,
                "micro_batches": shape.micro_batches,
                "chunks": shape.chunks,
                "group": shape.group,
            }
        )
        + "\n"
        for tool, name, shape in cases
    )
    command = [
        os.environ["PARC_CONFORMANCE_PYTHON"],
        str(CHECKER),
        os.environ["PARC_CONFORMANCE_MEGATRON"],
    ]
    done = subprocess.run(
        command, input=lines, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def answered_cases() -> list[tuple[Case, dict[str, Any]]]:
    cases = torch_cases() + megatron_cases()
    return list(zip(cases, run_checker(cases), strict=True))


def own_rows(name: str, shape: PipelineShape) -> list[list[str]]:
    return [[str(item) for item in row] for row in SCHEDULES[name].table(shape).rows]


@pytest.mark.parametrize(
    ("tool", "name"),
    [*(("torch", name) for name in NAMES), ("megatron", "1f1b"), ("megatron", "interleaved")],
)
def test_action_tables_equal_those_of_the_tool(tool: str, name: str) -> None:
    mine = [(case, answer) for case, answer in answered_cases() if case[:2] == (tool, name)]
    made = [(shape, answer["rows"]) for (_, _, shape), answer in mine if "rows" in answer]
    assert len(made) > 10
    assert [shape for shape, rows in made if own_rows(name, shape) != rows] == []


def test_parc_rejects_no_schedule_that_a_tool_accepts() -> None:
    rejected = [
        (case, reason)
        for case, answer in answered_cases()
        if "rows" in answer and (reason := SCHEDULES[case[1]].size_error(case[2]))
    ]
    assert rejected == []


def test_torch_rejects_the_dualpipe_v_shapes_that_parc_rejects() -> None:
    ours = [
        answer
        for (_, name, shape), answer in answered_cases()
        if name == "dualpipe-v" and SCHEDULES[name].size_error(shape)
    ]
    assert len(ours) > 10
    assert all("rejected" in answer for answer in ours)
