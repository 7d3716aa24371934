"""Action tables: equal to recorded tables, and valid for all sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.cost.schedules.registry import SCHEDULES
from parc.compiler.cost.schedules.table import Action, ActionTable, OverlappedPair, PipelineShape
from parc.compiler.diagnostics.table_yaml import parse_table

TEXT = (Path(__file__).parent / "cases" / "schedule_tables.yaml").read_text("utf-8")
CASES = parse_table(TEXT)
SHAPES = [
    PipelineShape(ranks, micro_batches, chunks, ranks + extra)
    for ranks in (1, 2, 3, 4, 6)
    for micro_batches in (1, 2, 3, 4, 8, 12, 13, 16)
    for chunks in (1, 2, 3)
    for extra in (0, 2)
]
VALID = [
    (name, shape)
    for name, schedule in SCHEDULES.items()
    for shape in SHAPES
    if not schedule.size_error(shape)
]


@pytest.mark.parametrize("case", CASES, ids=[case["title"] for case in CASES])
def test_a_table_equals_the_recorded_table(case: dict[str, Any]) -> None:
    sizes = dict(case["given"])
    table = SCHEDULES[sizes.pop("schedule")].table(PipelineShape(**sizes))
    assert str(table).splitlines() == case["expect"]


def test_every_schedule_has_a_recorded_table() -> None:
    assert {case["given"]["schedule"] for case in CASES} == set(SCHEDULES)


def flaws(table: ActionTable, micro_batches: int) -> list[str]:
    """Return the actions that are missing, repeated, on the wrong rank or before their input."""
    found = []
    done: Counter[tuple[int, str, int]] = Counter()
    for rank in range(len(table.rows)):
        seen: set[tuple[int, str, int]] = set()
        for stage, computation, micro_batch in table.actions(rank):
            needs = {"F": "", "B": "F", "I": "F", "W": "I"}[computation]
            if table.owners[stage] != rank or (needs and (stage, needs, micro_batch) not in seen):
                found.append(f"rank {rank}: {Action(stage, computation, micro_batch)}")
            seen.add((stage, computation, micro_batch))
            done.update(
                (stage, part, micro_batch) for part in ("IW" if computation == "B" else computation)
            )
    copies = len(table.owners) // table.depth
    share = micro_batches // copies
    wanted = Counter(
        (stage, computation, stage // table.depth * share + i)
        for stage in range(len(table.owners))
        for computation in "FIW"
        for i in range(share)
    )
    return found + [
        f"{key}: {done[key]} times" for key in wanted | done if done[key] != wanted[key]
    ]


def test_every_stage_runs_every_micro_batch_once_and_in_order() -> None:
    assert len(VALID) > 300
    wrong = [
        (name, shape, found[:3])
        for name, shape in VALID
        if (found := flaws(SCHEDULES[name].table(shape), shape.micro_batches))
    ]
    assert wrong == []


def test_mirrored_ranks_of_dualpipe_run_mirrored_actions() -> None:
    table = SCHEDULES["dualpipe"].table(PipelineShape(6, 16))

    def mirrored(action: Action) -> Action:
        return Action((action.stage + 6) % 12, action.computation, (action.micro_batch + 8) % 16)

    for rank in range(3):
        image = tuple(
            OverlappedPair(mirrored(item.forward), mirrored(item.backward))
            if isinstance(item, OverlappedPair)
            else mirrored(item)
            for item in table.rows[rank]
        )
        assert image == table.rows[5 - rank]


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("interleaved", PipelineShape(4, 8, 1), "two chunks"),
        ("interleaved", PipelineShape(4, 8, 2, 3), "smaller than 4 ranks"),
        ("interleaved", PipelineShape(4, 10, 2), "last group has 2"),
        ("zb-h1", PipelineShape(4, 10, 2), "last group has 2"),
        ("dualpipe-v", PipelineShape(4, 7), "7 micro-batches are fewer than 8"),
        ("dualpipe", PipelineShape(3, 8), "must both be even"),
        ("dualpipe", PipelineShape(4, 9), "must both be even"),
        ("dualpipe", PipelineShape(4, 6), "fewer than 8"),
        ("gpipe", PipelineShape(4, 0), "one micro-batch"),
    ],
)
def test_invalid_sizes_are_rejected_with_the_reason(
    name: str, shape: PipelineShape, words: str
) -> None:
    assert words in SCHEDULES[name].size_error(shape)
