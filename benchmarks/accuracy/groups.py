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


CLASS_ROWS = 10
"""Smallest number of rows for which a hardware class has a line."""
SMALL = "small models on one host"

Group = tuple[str, list[str]]
"""Name and run ids."""


def named_groups(cases: Sequence[Case]) -> list[Group]:
    """Return the non-empty groups that publications and other tools report on."""
    large = [case for case in cases if case.scored and not is_small(case)]
    found = [(name, [case.run.id for case in large if has(case)]) for name, has in NAMED]
    return [(name, ids) for name, ids in found if ids]


def class_groups(cases: Sequence[Case]) -> list[Group]:
    """Return the groups of hardware class and model type with at least ``CLASS_ROWS`` rows."""
    large = [case for case in cases if not is_small(case)]
    found = _grouped(large, lambda case: f"{case.generation} {case.kind}")
    return [(name, ids) for name, ids in found if len(ids) >= CLASS_ROWS]


def hardware_groups(cases: Sequence[Case]) -> list[Group]:
    """Return the groups of GPU, precision and model type, sorted."""
    return _grouped([case for case in cases if not is_small(case)], lambda case: case.group)


def small_group(cases: Sequence[Case]) -> list[Group]:
    """Return the group of small models on one host, or nothing if there are none."""
    return _grouped([case for case in cases if is_small(case)], lambda _: SMALL)


def _grouped(cases: Sequence[Case], key: Callable[[Case], str]) -> list[Group]:
    table: dict[str, list[str]] = {}
    for case in cases:
        if case.scored:
            table.setdefault(key(case), []).append(case.run.id)
    return sorted(table.items())
