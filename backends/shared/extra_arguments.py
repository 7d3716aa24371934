"""Judge ``launch.args``, flags that the user adds to those of the plan, by a list of known flags.

``known_flags.json`` of a backend holds every spelling of the real parsers: how many values a flag
takes (a number, ?, * or +; absent: 1), their type and choices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from parc.compiler.diagnostics import Finding, Sink

COUNTS: dict[object, tuple[int, float]] = {
    "?": (0, 1),
    "*": (0, float("inf")),
    "+": (1, float("inf")),
}
"""Open counts of values -> the least and the largest number."""


@dataclass(frozen=True, slots=True)
class Extra:
    """One flag of the user with its values; ``at`` is its index in ``launch.args``."""

    flag: str
    values: tuple[str, ...]
    at: int


Judge = Callable[[Extra], tuple[str, Finding] | None]
"""Code and finding for one flag; None where it is fine."""


@cache
def known_flags(package: str) -> dict[str, dict[str, Any]]:
    """Spelling -> row, from ``known_flags.json`` in the package of a backend."""
    text = (files(package) / "known_flags.json").read_text("utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return {row["flag"]: row for row in rows}


def read_extra(
    args: tuple[str, ...], short: Collection[str] = ()
) -> tuple[tuple[Extra, ...], tuple[str, ...]]:
    """Flags with their values, and the words that stand before the first flag.

    ``short`` are flags that do not start with two dashes.
    """
    extras: list[Extra] = []
    stray: list[str] = []
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if word.startswith("--") or flag in short:
            extras.append(Extra(flag, (value,) if equals else (), at))
        elif extras:
            last = extras[-1]
            extras[-1] = Extra(last.flag, (*last.values, word), last.at)
        else:
            stray.append(word)
    return tuple(extras), tuple(stray)


def judge_extra(
    extras: tuple[Extra, ...],
    stray: tuple[str, ...],
    judge: Judge,
    sink: Sink,
    targets: tuple[str, ...] = (),
) -> None:
    """Report stray words (F01), flags that ``judge`` refuses, and flags given twice (F02)."""
    for at, word in enumerate(stray):
        finding = Finding(f"{word!r} is no flag", label="a flag starts with --", targets=targets)
        sink.report("F01", finding, at=f"launch.args[{at}]")
    seen: set[str] = set()
    for extra in extras:
        found = judge(extra)
        if found is None and extra.flag in seen:
            found = "F02", Finding(f"{extra.flag} is given twice", label="the last one would win")
        seen.add(extra.flag)
        if found is not None:
            code, finding = found
            sink.report(code, replace(finding, targets=targets), at=f"launch.args[{extra.at}]")


def value_fault(extra: Extra, row: dict[str, Any]) -> Finding | None:
    """What is wrong with the values of a flag; None: nothing."""
    from difflib import get_close_matches

    takes, count = row.get("takes", 1), len(extra.values)
    low, high = COUNTS.get(takes, (takes, takes))
    if not low <= count <= high:
        wanted = f"{low} value{'' if low == 1 else 's'}" if low == high else f"{low} or more values"
        return Finding(f"{extra.flag} takes {wanted}, not {count}", label=f"{count} given")
    choices, kind = row.get("choices"), row.get("type")
    for value in extra.values:
        if choices and value not in choices:
            near = get_close_matches(value, choices, 1)
            return Finding(
                f"{value[:60]!r} is no value of {extra.flag}",
                label=f"must be one of {', '.join(choices)}",
                fix=f"{extra.flag} {near[0]}" if near else "",
            )
        if not _reads(value, kind):
            what = "whole number" if kind == "int" else "number"
            return Finding(f"{value[:60]!r} is no {what}", label=f"{extra.flag} takes a {what}")
    return None


_READERS: dict[str, Callable[[str], object]] = {"int": int, "float": float}


def _reads(value: str, kind: str | None) -> bool:
    """Whether ``value`` is of ``kind``."""
    try:
        _READERS.get(kind or "", str)(value)
    except ValueError:
        return False
    return True
