"""The table of codes: what each rule demands, why, and where that is written.

A family is a file, ``codes/D.yaml``; a code is a key in it. The table feeds severities,
``parc explain`` and docs/diagnostics.md, so that the three cannot differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parc.compiler.diagnostics.own_yaml import own_yaml
from parc.compiler.ir.finding import Severity


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """One code of the table."""

    code: str
    title: str
    """What is wrong, in a few words."""
    severity: Severity
    rule: str
    """The condition that must hold, as a formula."""
    why: str
    """What happens otherwise, and when the framework would say so."""
    fix: str
    sources: tuple[str, ...]
    """Pages or source lines that state the rule."""
    bad: str
    """A few lines of a spec that break it."""
    good: str
    silent: bool
    """The framework itself says nothing."""


@cache
def _text(letter: str) -> str:
    """The file of a family; KeyError where there is none."""
    path = files("parc.compiler.diagnostics") / "codes" / f"{letter}.yaml"
    if not path.is_file():
        raise KeyError(letter)
    return path.read_text("utf-8")


@cache
def family(letter: str) -> dict[str, CodeInfo]:
    """All codes that start with ``letter``; KeyError where there is no such family."""
    table: dict[str, dict[str, Any]] = own_yaml(_text(letter))
    return {code: _info(code, row) for code, row in table.items()}


def _info(code: str, row: dict[str, Any]) -> CodeInfo:
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
    """The row of ``code`` (``D01``); KeyError where there is none."""
    return family(code[0])[code]


def code_title(code: str) -> str:
    """The title of ``code`` by itself, without parsing its family; KeyError where there is none."""
    found = re.search(rf"^{re.escape(code)}:\n  title: (.+)$", _text(code[0]), re.MULTILINE)
    if found is None:
        raise KeyError(code)
    return found[1].strip("\"'")


def all_codes() -> tuple[CodeInfo, ...]:
    """Every code, sorted."""
    folder = files("parc.compiler.diagnostics") / "codes"
    letters = sorted(entry.name[0] for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return tuple(info for letter in letters for _, info in sorted(family(letter).items()))
