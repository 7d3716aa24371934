"""The groups that the table has a line for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.accuracy.cases import Case


def small(case: Case) -> bool:
    """One of the hundreds of small models on one host: a set of its own, where launches rule."""
    return "vTrain" in case.run.source and case.run.gpus <= 8


NAMED: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    ("Selene", lambda case: "Korthikanti" in case.run.source),
    ("vTrain multi-node", lambda case: "vTrain" in case.run.source),
    ("FSDP and ZeRO-2/3", lambda case: case.fsdp),
    (
        "dense, A100 and H100",
        lambda case: (
            case.kind == "dense"
            and not case.fsdp
            and case.problem.cluster.gpu.name.startswith(("a100", "h100"))
        ),
    ),
    ("all dense", lambda case: case.kind == "dense"),
    ("all MoE", lambda case: case.kind == "MoE"),
    ("all", lambda case: True),
)
"""Name and membership, in the order of the table."""


def named_groups(cases: Sequence[Case]) -> list[tuple[str, list[str]]]:
    """(name, run ids) of the groups that papers and peers report on; empty ones are left out."""
    large = [case for case in cases if case.scored and not small(case)]
    found = [(name, [case.run.id for case in large if has(case)]) for name, has in NAMED]
    return [(name, ids) for name, ids in found if ids]


def hardware_groups(cases: Sequence[Case]) -> list[tuple[str, list[str]]]:
    """(GPU precision kind, run ids), sorted."""
    table: dict[str, list[str]] = {}
    for case in cases:
        if case.scored and not small(case):
            table.setdefault(case.group, []).append(case.run.id)
    return sorted(table.items())
