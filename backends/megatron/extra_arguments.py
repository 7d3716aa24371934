"""Judge ``launch.args``: flags that the user adds to those of the plan.

``known_flags.json`` holds every spelling of the real parsers of Megatron-Core 0.17 to 0.20.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.megatron.arguments import Argument
from parc.backends.megatron.versions import as_number
from parc.compiler.diagnostics import Cause, Finding, Sink

ANY_NUMBER = {"+": 1, "*": 0}
"""Open-ended counts of values -> the least number."""


@dataclass(frozen=True, slots=True)
class Extra:
    """One flag of the user with its values; ``at`` is its index in ``launch.args``."""

    flag: str
    values: tuple[str, ...]
    at: int


@cache
def known_flags() -> dict[str, dict[str, Any]]:
    """Spelling -> takes (values: 0, 1, 3, + or *), type, choices, since, until."""
    text = (files("parc.backends.megatron") / "known_flags.json").read_text("utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return {row["flag"]: row for row in rows}


def flags_of(version: str) -> list[str]:
    """All spellings that ``version`` knows, sorted."""
    number = as_number(version)
    return [
        flag
        for flag, row in known_flags().items()
        if as_number(row.get("since", "0.0")) <= number <= as_number(row.get("until", "99.0"))
    ]


def read_extra(args: tuple[str, ...]) -> tuple[tuple[Extra, ...], tuple[str, ...]]:
    """Flags with their values, and the words that stand before the first flag."""
    extras: list[Extra] = []
    stray: list[str] = []
    for at, word in enumerate(args):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            extras.append(Extra(flag, (value,) if equals else (), at))
        elif extras:
            last = extras[-1]
            extras[-1] = Extra(last.flag, (*last.values, word), last.at)
        else:
            stray.append(word)
    return tuple(extras), tuple(stray)


def check_extra(
    args: tuple[str, ...], planned: tuple[Argument, ...], version: str, sink: Sink
) -> None:
    """Report what the parser would refuse, and what the plan already says."""
    extras, stray = read_extra(args)
    for at, word in enumerate(stray):
        finding = Finding(f"{word!r} is no flag", label="a flag starts with --")
        sink.report("F01", finding, at=f"launch.args[{at}]")
    spellings, own = flags_of(version), _own(planned)
    seen: set[str] = set()
    for extra in extras:
        found = _judge(extra, spellings, own, version)
        if found is None and extra.flag in seen:
            found = "F02", Finding(f"{extra.flag} is given twice", label="the last one would win")
        seen.add(extra.flag)
        if found is not None:
            sink.report(found[0], found[1], at=f"launch.args[{extra.at}]")


def _own(planned: tuple[Argument, ...]) -> dict[str, Argument]:
    return {argument.flag: argument for argument in planned}


def _judge(
    extra: Extra, spellings: list[str], own: dict[str, Argument], version: str
) -> tuple[str, Finding] | None:
    """Code and finding for one flag; None where it is fine."""
    if extra.flag not in spellings:
        return "F01", unknown_flag(extra.flag, spellings, version)
    if extra.flag in own:
        return "F02", _twice(own[extra.flag])
    fault = value_fault(extra, known_flags()[extra.flag])
    return None if fault is None else ("F03", fault)


def unknown_flag(flag: str, spellings: list[str], version: str) -> Finding:
    """F01: what ``version`` has in place of ``flag``."""
    near = get_close_matches(flag, spellings, 3)
    row = known_flags().get(flag)
    label = "no such flag"
    if row is not None:
        label = f"known from {row.get('since', '0.17')} to {row.get('until', 'today')}"
    return Finding(
        message=f"Megatron-LM {version} has no flag {flag}",
        label=label,
        help=f"did you mean: {', '.join(near)}" if near else "see pretrain_gpt.py --help",
        fix=near[0] if near else "",
        causes=(Cause("versions.megatron", f"version {version}"),),
    )


def _twice(argument: Argument) -> Finding:
    said = " ".join((argument.flag, *argument.values))
    return Finding(
        message=f"{argument.flag} is set by the plan already",
        label=f"the plan says: {said}",
        help="change the field of the spec that it comes from",
        fix="remove it from launch.args",
    )


def value_fault(extra: Extra, row: dict[str, Any]) -> Finding | None:
    """What is wrong with the values."""
    takes, count = row.get("takes", 1), len(extra.values)
    if takes in ANY_NUMBER:
        right, wanted = count >= ANY_NUMBER[takes], f"{ANY_NUMBER[takes]} or more values"
    else:
        right, wanted = count == takes, f"{takes} value{'' if takes == 1 else 's'}"
    if not right:
        return Finding(f"{extra.flag} takes {wanted}, not {count}", label=f"{count} given")
    choices = row.get("choices")
    for value in extra.values:
        if choices and value not in choices:
            near = get_close_matches(value, choices, 1)
            return Finding(
                f"{value!r} is no value of {extra.flag}",
                label=f"must be one of {', '.join(choices)}",
                fix=f"{extra.flag} {near[0]}" if near else "",
            )
        if not _reads(value, row.get("type")):
            kind = _WORDS[row["type"]]
            return Finding(f"{value!r} is no {kind}", label=f"{extra.flag} takes a {kind}")
    return None


_READERS: dict[str, Callable[[str], object]] = {"int": int, "float": float}
_WORDS = {"int": "whole number", "float": "number"}


def _reads(value: str, kind: str | None) -> bool:
    """Whether ``value`` is of ``kind``."""
    try:
        _READERS.get(kind or "", str)(value)
    except ValueError:
        return False
    return True
