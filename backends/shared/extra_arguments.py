"""Checks of ``launch.args``, the flags that the user adds to those of the plan.

``known_flags.json`` of a backend contains every spelling of a flag that the framework's own
parser accepts. ``takes`` is the number of values (a number, ?, * or +; 1 if absent); ``type``,
``choices`` and the bounds of ``backends/value_range.py`` limit the values. ``since`` and ``until``
are the first and the last version that a row describes; a flag whose values changed has one row
per range of versions. ``flag_bounds.yaml`` adds the ranges that the framework needs and its parser
does not check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.shared.versions import is_in_range
from parc.backends.value_range import find_range_fault
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.diagnostics.sink import MOST_PER_CODE
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import LaunchFlag
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.flag_rules import FlagCoupling, broken_couplings

COUNTS: dict[object, tuple[int, float]] = {
    "?": (0, 1),
    "*": (0, float("inf")),
    "+": (1, float("inf")),
}
"""Values of ``takes`` that are not numbers -> the smallest and the largest number of values."""


@frozen
class ExtraArgument:
    """A flag in ``launch.args`` with its values; ``at`` is the index of the flag in that list."""

    flag: str
    values: tuple[str, ...]
    at: int


ArgumentCheck = Callable[[ExtraArgument], tuple[str, Finding] | None]
"""Check of one flag: returns diagnostic code and finding, or None if the flag is valid."""


@cache
def rows_of_known_flags(package: str, version: str = "") -> dict[str, dict[str, Any]]:
    """Return the rows of ``known_flags.json`` in the Python package ``package``, by flag.

    A row describes one flag of ``version`` of the framework: its number of values and its valid
    values. Without a version, the result contains the newest row of every flag.
    """
    bounds = bounds_outside_parser(package)
    return {
        flag: row | bounds.get(row.get("means", flag), {})
        for flag, row in rows_of_parser(package, version).items()
    }


def rows_of_parser(package: str, version: str = "") -> dict[str, dict[str, Any]]:
    """Return ``rows_of_known_flags`` with the bounds that the program itself enforces, only."""
    text = (files(package) / "known_flags.json").read_text("utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return {
        row["flag"]: row
        for row in rows
        if not version or is_in_range(version, row.get("since"), row.get("until"))
    }


@cache
def bounds_outside_parser(package: str) -> dict[str, dict[str, float]]:
    """Return flag -> bounds in ``flag_bounds.yaml`` of ``package``; empty without this file."""
    path = files(package) / "flag_bounds.yaml"
    table = parse_table(path.read_text("utf-8")) if path.is_file() else {}
    return {flag: bounds for rows in table.values() for flag, bounds in rows.items()}


@cache
def removed_flags(package: str) -> dict[str, dict[str, str]]:
    """Return the rows of ``removed_flags.json`` in ``package`` by flag; empty without this file.

    In a row, ``until`` is the last release that accepted the flag, and ``instead`` is the
    replacement, if there is one; ``see`` is advice if there is none.
    """
    path = files(package) / "removed_flags.json"
    rows: list[dict[str, str]] = json.loads(path.read_text("utf-8")) if path.is_file() else []
    return {row["flag"]: row for row in rows}


def explain_removed_flag(title: str, flag: str, row: Mapping[str, str]) -> Finding:
    """Return the finding that an engine no longer has ``flag`` (F01).

    ``title`` is the name and the version of the engine; ``row`` is the row of the flag in
    ``removed_flags.json``.
    """
    return Finding(
        f"{title} no longer has the flag {flag}",
        label=f"{flag} was removed after release {row['until']}",
        help=row.get("see", ""),
        fix=row.get("instead", ""),
    )


def advise_removed_flag(package: str, flag: str) -> str:
    """Return what replaces a flag that its engine no longer has; "" if it was never removed."""
    row = removed_flags(package).get(flag)
    if row is None:
        return ""
    advice = f"use {row['instead']} instead" if "instead" in row else row.get("see", "")
    return f"the flag was removed after release {row['until']}" + (f": {advice}" if advice else "")


def expand_abbreviation(flag: str, rows: Collection[str]) -> str:
    """Return the flag in ``rows`` that ``flag`` abbreviates: ``--max-num-seq``.

    argparse accepts the start of a long flag if it is the start of no other flag, unless the parser
    sets allow_abbrev=False. The result is ``flag`` itself if it abbreviates none or several flags.
    """
    if flag in rows or not flag.startswith("--") or flag == "--":
        return flag
    longer = [name for name in rows if name.startswith(flag)]
    return longer[0] if len(longer) == 1 else flag


def parse_extra_arguments(
    args: tuple[str, ...], short: Collection[str] = ()
) -> tuple[tuple[ExtraArgument, ...], tuple[str, ...]]:
    """Return (flags of ``launch.args`` with their values, words before the first flag).

    A word is a flag if it starts with two dashes or if ``short`` contains it. Other words are
    values of the flag before them.
    """
    extras: list[ExtraArgument] = []
    stray: list[str] = []
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if word.startswith("--") or flag in short:
            extras.append(ExtraArgument(flag, (value,) if equals else (), at))
        elif extras:
            last = extras[-1]
            extras[-1] = ExtraArgument(last.flag, (*last.values, word), last.at)
        else:
            stray.append(word)
    return tuple(extras), tuple(stray)


def report_extra_arguments(
    extras: tuple[ExtraArgument, ...],
    stray: tuple[str, ...],
    check: ArgumentCheck,
    sink: Sink,
    targets: tuple[str, ...] = (),
) -> None:
    """Report invalid words, rejected flags and repeated flags in ``launch.args``.

    Checking stops after more than MOST_PER_CODE findings about flags.

    Args:
        extras: flags of ``launch.args`` with their values.
        stray: words that belong to no flag; each is reported (F01).
        check: function that returns a diagnostic code and a finding for an invalid flag.
        sink: receives the findings. Repeated flags have the code F02.
        targets: names of the frameworks that the findings concern.
    """
    for at, word in enumerate(stray):
        finding = Finding(
            f"{word!r} is not a flag", label="a flag must start with --", targets=targets
        )
        sink.report("F01", finding, at=f"launch.args[{at}]")
    seen: set[str] = set()
    rejected = 0
    for extra in extras:
        # To explain a flag takes a millisecond, because all known flags are compared with it.
        if rejected > MOST_PER_CODE:
            return
        found = check(extra)
        if found is None and extra.flag in seen:
            found = (
                "F02",
                Finding(f"{extra.flag} is given twice", label="only the last value has an effect"),
            )
        seen.add(extra.flag)
        if found is not None:
            rejected += 1
            code, finding = found
            sink.report(code, replace(finding, targets=targets), at=f"launch.args[{extra.at}]")


def report_broken_couplings(
    table: tuple[FlagCoupling, ...],
    planned: Mapping[str, tuple[str, ...]],
    extras: tuple[ExtraArgument, ...],
    sink: Sink,
    targets: tuple[str, ...] = (),
) -> None:
    """Report flags of ``launch.args`` that exclude or lack another flag of the command.

    Args:
        table: flags of the framework that need or exclude another flag.
        planned: flag -> values, for the flags that the plan sets.
        extras: flags of ``launch.args`` with their long names.
        sink: receives the findings, with the codes of the rows.
        targets: names of the frameworks that the findings concern.
    """
    values = {**planned, **{extra.flag: extra.values for extra in extras}}
    at = {extra.flag: extra.at for extra in extras}
    span = Span("", 1, 1)
    flags = {
        name: LaunchFlag(name, Word(name, span, 0), tuple(Word(one, span, 0) for one in words))
        for name, words in values.items()
    }
    for broken in broken_couplings(table, flags, flags, is_open=False):
        # A plan breaks no row by itself, so that one of the two flags is in launch.args.
        involved = (flag.name for flag in (broken.flag, broken.other) if flag is not None)
        index = next((at[name] for name in involved if name in at), None)
        if index is not None:
            shown = replace(broken.finding, causes=(), targets=targets)
            sink.report(broken.code, shown, at=f"launch.args[{index}]")


ESTIMATE_FREE = "flags_outside_estimate.yaml"
"""File of an engine with the flags that change neither memory nor time, as patterns of names."""


@cache
def _flags_outside_estimate(package: str) -> tuple[str, ...]:
    text = (files(package) / ESTIMATE_FREE).read_text("utf-8")
    return tuple(parse_table(text)["flags"])


def explain_unestimated_flag(flag: str, means: str, package: str) -> Finding | None:
    """Return the finding that the estimate ignores ``flag`` (V43).

    Return None if the flag changes neither memory nor time. ``means`` is the long, positive name of
    the flag. Flags that no table lists are reported, so that a new flag of an engine is not
    ignored silently.
    """
    name = means.removeprefix("--")
    if any(fnmatchcase(name, pattern) for pattern in _flags_outside_estimate(package)):
        return None
    return Finding(
        f"the estimate does not include the effect of {flag[:60]}",
        label="the flag can change the memory, the speed or the number of requests of the engine",
        help="the flag is passed to the engine; measure the service, and compare it with the "
        "estimate before you rely on the latencies and on the number of GPUs",
    )


def spec_field_of_flag(flag: str, package: str) -> str:
    """Return the spec field that determines a planned flag; empty if there is no single field."""
    groups = parse_table((files(package) / "flags.yaml").read_text("utf-8"))
    row: dict[str, Any] = next((rows[flag] for rows in groups.values() if flag in rows), {})
    read = row.get("import", "")
    named = row.get("spec") or (next(iter(read)) if isinstance(read, dict) else read)
    return "" if named == "implied" else str(named)


_MISSPELLED = 0.8
"""Smallest similarity (ratio of difflib) of a misspelled flag and the flag that was meant."""


def fix_unknown_flag(flag: str, near: Sequence[str]) -> str:
    """Return the flag that ``flag`` misspells, for the fix of a finding; "" if it is not certain.

    ``near`` lists the most similar flags. A flag that only resembles ``flag`` may do anything else.
    """
    from difflib import SequenceMatcher

    sure = near and SequenceMatcher(None, flag, near[0]).ratio() >= _MISSPELLED
    return near[0] if sure else ""


def find_value_fault(extra: ExtraArgument, row: dict[str, Any]) -> Finding | None:
    """Return a finding if the flag ``extra`` has a wrong number of values or an invalid value.

    Return None if all values are valid. ``row`` is the row of the flag in
    ``known_flags.json``.
    """
    # Imported here because difflib is needed only for a finding.
    from difflib import get_close_matches

    takes, count = row.get("takes", 1), len(extra.values)
    low, high = COUNTS.get(takes, (takes, takes))
    if not low <= count <= high:
        right = f"{low} value{'' if low == 1 else 's'}" if low == high else f"{low} or more values"
        return Finding(f"{extra.flag} requires {right}, not {count}", label=f"{count} values given")
    choices, kind = row.get("choices"), row.get("type")
    for value in extra.values:
        if choices and value not in choices:
            # float8 is not a misspelled float16: a value with other digits is another value.
            digits = re.sub(r"\D", "", value)
            alike = [one for one in choices if not digits or re.sub(r"\D", "", one) == digits]
            near = get_close_matches(value, alike, 1)
            return Finding(
                f"{value[:60]!r} is not a valid value of {extra.flag}",
                label=f"the value must be one of {', '.join(choices)}",
                fix=f"{extra.flag} {near[0]}" if near else "",
            )
        if not _can_parse(value, kind):
            what = "whole number" if kind == "int" else "number"
            return Finding(
                f"{value[:60]!r} is not a {what}", label=f"{extra.flag} requires a {what}"
            )
        if (fault := find_range_fault(extra.flag, value, row)) is not None:
            return fault
    return None


_PARSERS: dict[str, Callable[[str], object]] = {"int": int, "float": float}


def _can_parse(value: str, kind: str | None) -> bool:
    """Return True if the text ``value`` can be parsed as a number of the type ``kind``.

    ``kind`` is "int" or "float". If ``kind`` is None, every text is valid.
    """
    try:
        _PARSERS.get(kind or "", str)(value)
    except ValueError:
        return False
    return True
