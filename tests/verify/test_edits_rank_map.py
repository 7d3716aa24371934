"""Random edits of the rank map and of the preflight check: those that change a value are named."""

from __future__ import annotations

import csv
import io

import pytest

from tests import compiled
from tests.compiled import example
from tests.verify.edits import (
    EDITS,
    NAMED,
    Behaviour,
    json_behaviour,
    measure_edits,
    python_behaviour,
)


def csv_behaviour(text: str) -> object:
    """Return the rows of a CSV table."""
    return list(csv.reader(io.StringIO(text)))


EXAMPLES = ("llama-3-8b-fsdp", "llama-3-70b-kubernetes", "deepseek-v3-serve", "mixtral-8x7b")
CASES: list[tuple[str, str, Behaviour]] = [
    *((name, "rankmap.csv", csv_behaviour) for name in EXAMPLES),
    *((name, "rankmap.json", json_behaviour) for name in EXAMPLES),
    ("llama-3-8b-fsdp", "preflight/expected.json", json_behaviour),
    ("llama-3-70b-torchtitan", "preflight/expected.json", json_behaviour),
    ("llama-3-8b-fsdp", "preflight/check_ranks.py", python_behaviour),
]
PER_FILE = {"rankmap.csv": 4, "rankmap.json": 4, "preflight/expected.json": 2}
"""File -> number of cases, so that ``PARC_EDITS`` is the number of edits per file."""


@pytest.mark.parametrize(("name", "file", "behaviour"), CASES)
def test_edits_that_change_a_value_are_named(name: str, file: str, behaviour: Behaviour) -> None:
    files = compiled.emitted(example(name))
    count = -(-EDITS // PER_FILE.get(file, 1))
    score = measure_edits(files, file, behaviour, count)
    assert score.named >= NAMED, score.missed
    assert not score.alarms, score.alarms
