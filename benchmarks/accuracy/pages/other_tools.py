"""Errors of other tools on the same rows, from recorded predictions (benchmarks/baselines.py)."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.groups import Group, class_groups, named_groups, small_group
from benchmarks.accuracy.pages.page_tables import markdown
from benchmarks.accuracy.runs import PUBLISHED
from benchmarks.accuracy.score import score
from benchmarks.accuracy.sources import is_locked

RECORDED = PUBLISHED / "baselines.csv"
OPEN_GROUPS = ("Selene", "vTrain multi-node")
"""Groups of open rows that publications report on."""
MIN_ROWS = 4
"""Smallest number of rows for a line of the table."""


def read_recorded(path: Path = RECORDED) -> dict[str, dict[str, float]]:
    """Return predicted seconds by tool and run id."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["tool"]][row["id"]] = float(row["seconds"])
    return dict(found)


def compared_groups(cases: Sequence[Case]) -> list[Group]:
    """Return the groups of locked rows, then those of open rows that publications report on."""
    locked = [case for case in cases if is_locked(case)]
    rows = [case for case in cases if not is_locked(case)]
    groups = [*named_groups(locked), *class_groups(locked), *small_group(locked)]
    found = [(f"locked: {name}", ids) for name, ids in groups]
    return found + [(name, ids) for name, ids in named_groups(rows) if name in OPEN_GROUPS]


def comparison_table(cases: Sequence[Case], unseen: Mapping[str, float]) -> str:
    """Return the table of errors of PARC and of each tool on the rows that the tool can express.

    ``unseen`` contains PARC's predicted time over measured time for each run, from fits without the
    source of the run.
    """
    measured = {case.run.id: case.seconds for case in cases}
    lines = []
    for name, ids in compared_groups(cases):
        for tool, seconds in read_recorded().items():
            both = [run for run in ids if run in seconds]
            if len(both) >= MIN_ROWS:
                other = score([seconds[run] / measured[run] for run in both])
                own = score([unseen[run] for run in both])
                values = (own.mape, other.mape, other.median, other.bias)
                cells = (f"{100 * value:.1f}" for value in values)
                lines.append((name, tool, str(len(both)), *cells))
    heads = ("group", "tool", "rows", "PARC", "tool", "tool's median", "tool's bias")
    return markdown(heads, lines, words=2)
