"""Random edits of the rank map and of the preflight check: those that change a value are named."""

from __future__ import annotations

import csv
import io

import pytest

from tests import compiled
from tests.verify.edits import (
    EDITS,
    NAMED,
    Behavior,
    findings,
    json_behavior,
    measure_edits,
    python_behavior,
)


def csv_behavior(text: str) -> object:
    """Return the rows of a CSV table."""
    return list(csv.reader(io.StringIO(text)))


def page_behavior(text: str) -> object:
    """Return the lines of a Markdown page, with the cells of table rows."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


EXAMPLES = ("llama-3-8b-fsdp", "llama-3-70b-kubernetes", "deepseek-v3-serve", "mixtral-8x7b")
CASES: list[tuple[str, str, Behavior]] = [
    *((name, "rankmap.csv", csv_behavior) for name in EXAMPLES),
    *((name, "rankmap.json", json_behavior) for name in EXAMPLES),
    *((name, "rankmap.md", page_behavior) for name in EXAMPLES),
    ("llama-3-8b-fsdp", "preflight/expected.json", json_behavior),
    ("llama-3-70b-torchtitan", "preflight/expected.json", json_behavior),
    ("llama-3-8b-fsdp", "preflight/check_ranks.py", python_behavior),
]
PER_FILE = {"rankmap.csv": 4, "rankmap.json": 4, "rankmap.md": 4, "preflight/expected.json": 2}
"""File -> number of cases, so that ``PARC_EDITS`` is the number of edits per file."""


@pytest.mark.parametrize(("name", "file", "behavior"), CASES)
def test_edits_that_change_a_value_are_named(name: str, file: str, behavior: Behavior) -> None:
    files = compiled.example_files(name)
    count = -(-EDITS // PER_FILE.get(file, 1))
    score = measure_edits(files, file, behavior, count)
    assert score.named >= NAMED, score.missed
    assert not score.alarms, score.alarms


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "llama-3.1-405b",
            "| 1024-2047 |",
            "| 1024-2046 |",
            "rankmap.md has '1024-2046' in the column ranks of the table Stages, "
            "the plan needs '1024-2047'",
        ),
        ("llama-3.1-405b", "| 1-2, 33-34,", "| 1-3, 33-34,", "column layers of the table Stages"),
        ("llama-3.1-405b", "node[0017-0032]", "node[0017-0033]", "column names of the table Racks"),
        ("llama-3.1-405b", "119 more racks", "118 more racks", "column names of the table Racks"),
        ("llama-3.1-405b", "| dp | 128 x 128 |", "| dp | 64 x 256 |", "column groups x ranks"),
        (
            "llama-3.1-405b",
            "128 | 8 |\n",
            "128 | 4 |\n",
            "column max racks of the table Process groups",
        ),
        ("llama-3.1-405b", "rank = tp + 8 (dp", "rank = tp + 4 (dp", "- dense: tp 8, cp 1"),
        ("llama-3.1-405b", "| 702 GB | ", "| 701 GB | ", "column busiest uplink per step"),
        ("llama-3.1-405b", "(lower bound ", "(lower bound 9", "- exposed on links"),
        ("llama-3.1-405b", "order: optimal (proved)", "order: heuristic", "optimal (proved)"),
        ("llama-3.1-405b", "| 8 | node0002 | 0 |", "| 8 | node0001 | 0 |", "column host of the"),
        ("llama-3.1-405b", "| 8 | node0002 | 0 |", "| 8 | node0002 | 1 |", "column GPU of the"),
        ("llama-3.1-405b", "| 0 | 1 | 0 | 1 | 0 |", "| 0 | 1 | 0 | 0 | 0 |", "column etp of the"),
        ("llama-3.1-405b", "| 8 | node0002 | 0 |", "| 8 | node0002 |", "has 9 cells, must have 10"),
        ("llama-3.1-405b", "| 10 | 10240-11263 |", "|", "has 3 cells, must have 5"),
        ("deepseek-v3-serve", "| 0 | 0-31 | 0-3 |", "| 0 | 0-30 | 0-3 |", "the table Engines"),
        ("deepseek-v3-serve", "r[11-12]n[01-02]", "r[11-12]n[01-03]", "the table Engines"),
        ("deepseek-v3-serve", "| 39.19 |", "| 39.18 |", "column weights GiB of the table Stages"),
        ("deepseek-v3-serve", "dp 32, ep 32", "dp 16, ep 32", "- degrees: tp 1, pp 1, dp 32"),
    ],
)
def test_a_changed_cell_of_the_page_is_named(name: str, old: str, new: str, message: str) -> None:
    files = compiled.example_files(name)
    assert old in files["rankmap.md"]
    found = findings(files | {"rankmap.md": files["rankmap.md"].replace(old, new, 1)})
    assert len(found) == 1
    assert found[0].startswith("PARC-A06")
    assert message in found[0]


@pytest.mark.parametrize("name", ["llama-3-70b", "deepseek-v3-serve"])
def test_a_page_with_a_row_less_or_more_is_named(name: str) -> None:
    files = compiled.example_files(name)
    lines = files["rankmap.md"].split("\n")
    rows = [at for at, line in enumerate(lines) if line]
    for at in rows:
        for less in (lines[:at] + lines[at + 1 :], [*lines[:at], lines[at], *lines[at:]]):
            found = findings(files | {"rankmap.md": "\n".join(less)})
            assert [one[:8] for one in found] == ["PARC-A06"], lines[at]


def test_blank_lines_and_blanks_in_cells_of_the_page_are_free() -> None:
    files = compiled.example_files("deepseek-v3-serve")
    text = files["rankmap.md"].replace("| 0 ", "|  0\t").replace("\n\n", "\n\n\n")
    assert findings(files | {"rankmap.md": text}) == []
