"""Rows of known_flags.json from the real SGLang: its parser, and the bounds that it enforces."""

from __future__ import annotations

from typing import Any

from tests.conformance.checker_processes import run_cases
from tests.conformance.good_inputs import LLAMA_70B
from tests.conformance.shared.flag_bounds import measure_bounds
from tests.conformance.tool_checkers import HERE, sglang_verdicts, tool_python

COMMAND = ("--model-path", "model", "--tp-size", "8")


def rows_with_bounds() -> list[dict[str, Any]]:
    """Return the rows of all flags, with the bounds that ServerArgs enforces after parsing."""
    (verdict,) = sglang_verdicts([{"flags": True}])
    rows: list[dict[str, Any]] = verdict["flags"]
    bounds = measure_bounds(rows, accepts)
    return [row | bounds.get(row.get("means", row["flag"]), {}) for row in rows]


def accepts(changes: list[list[str]]) -> list[bool]:
    """Return for each list of words whether SGLang accepts a command with these words added.

    A value that ends the program with an exception of Python, such as a division by zero, is
    rejected too.
    """
    command = [tool_python("sglang"), str(HERE / "sglang" / "sglang_checker.py")]
    cases = [
        {"name": str(number), "argv": [*COMMAND, *words], "config": LLAMA_70B}
        for number, words in enumerate(changes)
    ]
    accepted = {verdict["name"]: verdict["accepted"] for verdict in run_cases(command, cases)}
    return [accepted[case["name"]] for case in cases]
