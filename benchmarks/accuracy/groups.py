"""Groups of cases that have a line in the accuracy tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.accuracy.cases import Case


def is_small(case: Case) -> bool:
    """Return True if ``case`` is one of vTrain's small models on one host.

    There are hundreds of them and kernel launches dominate their time, so they are scored
    separately.
    """
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
"""(name, membership test) of each group, in the order of the table."""


def named_groups(cases: Sequence[Case]) -> list[tuple[str, list[str]]]:
    """Return (name, run ids) of non-empty groups that publications and other tools report on."""
    large = [case for case in cases if case.scored and not is_small(case)]
    found = [(name, [case.run.id for case in large if has(case)]) for name, has in NAMED]
    return [(name, ids) for name, ids in found if ids]


def hardware_groups(cases: Sequence[Case]) -> list[tuple[str, list[str]]]:
    """Return (GPU, precision and model type; run ids), sorted."""
    table: dict[str, list[str]] = {}
    for case in cases:
        if case.scored and not is_small(case):
            table.setdefault(case.group, []).append(case.run.id)
    return sorted(table.items())
