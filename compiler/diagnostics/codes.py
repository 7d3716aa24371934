"""Read the table of diagnostic codes: rule, reason, fix and sources of each code.

``codes/D.yaml`` contains all codes that start with D. Diagnostics, ``parc explain`` and
docs/diagnostics.md all use this table, so they cannot contradict each other.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.finding import Severity
from parc.compiler.ir.frozen import frozen


@frozen
class CodeInfo:
    """Description of one diagnostic code, as in ``codes/*.yaml``."""

    code: str
    title: str
    """Name of the problem, such as ``Attention heads not divisible by tensor parallel size``."""
    severity: Severity
    rule: str
    """Condition that the spec must satisfy, as a formula."""
    why: str
    """Consequence of breaking the rule, and when the framework reports it."""
    fix: str
    sources: tuple[str, ...]
    """Pages or source files that state the rule."""
    bad: str
    """Lines of a spec or launch file that break the rule."""
    good: str
    """The lines of ``bad`` without the mistake."""
    silent: bool
    """True if the framework itself does not report the problem."""


@cache
def _read_text(letter: str) -> str:
    """Return the text of ``codes/<letter>.yaml``.

    Raises:
        KeyError: the file does not exist.
    """
    path = files("parc.compiler.diagnostics") / "codes" / f"{letter}.yaml"
    if not path.is_file():
        raise KeyError(letter)
    return path.read_text("utf-8")


@cache
def codes_with_letter(letter: str) -> dict[str, CodeInfo]:
    """Return code -> table row, for all diagnostic codes that start with ``letter``.

    Raises:
        KeyError: no code starts with ``letter``.
    """
    table: dict[str, dict[str, Any]] = parse_table(_read_text(letter))
    return {code: _code_info_from_row(code, row) for code, row in table.items()}


def _code_info_from_row(code: str, row: dict[str, Any]) -> CodeInfo:
    return CodeInfo(
        code=code,
        title=row["title"],
        severity=row["severity"],
        rule=row["rule"],
        why=row["why"],
        fix=row["fix"],
        sources=tuple(row.get("sources", ())),
        bad=row.get("bad", ""),
        good=row.get("good", ""),
        silent=row.get("silent", False),
    )


def code_info(code: str) -> CodeInfo:
    """Return the table row of ``code``, such as ``D01``; raise KeyError if the code is unknown."""
    return codes_with_letter(code[0])[code]


def code_title(code: str) -> str:
    """Return the title of a diagnostic code; raise KeyError if the code is unknown."""
    # A compile prints a few titles and needs no other field. Finding the line of the title is much
    # faster than parsing the whole file.
    found = re.search(rf"^{re.escape(code)}:\n  title: (.+)$", _read_text(code[0]), re.MULTILINE)
    if found is None:
        raise KeyError(code)
    return found[1].strip("\"'")


def all_codes() -> tuple[CodeInfo, ...]:
    """Return the rows of all diagnostic codes, sorted by code."""
    folder = files("parc.compiler.diagnostics") / "codes"
    letters = sorted(entry.name[0] for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return tuple(
        info for letter in letters for _, info in sorted(codes_with_letter(letter).items())
    )
