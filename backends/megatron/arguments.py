"""The arguments of one layout, from the flag table. Valid or not: the rules judge, this speaks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.megatron import derived_layout, derived_model, derived_position
from parc.backends.megatron.versions import as_number
from parc.compiler.ir import Layout, Problem


@dataclass(frozen=True, slots=True)
class Argument:
    """One flag with its values."""

    flag: str
    values: tuple[str, ...]
    group: str


@dataclass(frozen=True, slots=True)
class FlagRow:
    """One row of flags.yaml."""

    flag: str
    group: str
    fields: tuple[str, ...]
    """Plan fields that it speaks for."""
    derived: str
    """Name of the function that computes the value; empty: the first field, or the constant."""
    constant: str | bool | None
    since: str | None
    until: str | None


IGNORED = "ignored"


@cache
def flag_table() -> tuple[FlagRow, ...]:
    """All rows, in the order in which they are emitted."""
    return tuple(
        _row(flag, group, row)
        for group, rows in _read().items()
        if group != IGNORED
        for flag, row in rows.items()
    )


@cache
def ignored_fields() -> dict[str, str]:
    """Plan fields that no flag speaks for, with the reason."""
    return dict(_read()[IGNORED])


@cache
def _read() -> dict[str, dict[str, Any]]:
    from ruamel.yaml import YAML

    text = (files("parc.backends.megatron") / "flags.yaml").read_text("utf-8")
    table: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    return table


def _row(flag: str, group: str, row: dict[str, Any]) -> FlagRow:
    return FlagRow(
        flag=flag,
        group=group,
        fields=tuple(row.get("from", ())),
        derived=row.get("value", ""),
        constant=row.get("set"),
        since=row.get("since"),
        until=row.get("until"),
    )


def arguments(problem: Problem, layout: Layout) -> tuple[Argument, ...]:
    """All flags that PARC sets, without the user's own."""
    version = as_number(problem.version("megatron"))
    found = []
    for row in flag_table():
        if not _known(row, version):
            continue
        value = _value(row, problem, layout)
        if value is not None and value is not False:
            found.append(Argument(row.flag, _words(value), row.group))
    return tuple(found)


def _known(row: FlagRow, version: tuple[int, ...]) -> bool:
    """Whether ``version`` has the flag."""
    early = row.since is not None and version < as_number(row.since)
    late = row.until is not None and version > as_number(row.until)
    return not (early or late)


def _value(row: FlagRow, problem: Problem, layout: Layout) -> Any:
    """What the flag says; None or False: nothing."""
    if row.constant is not None:
        return row.constant
    if not row.derived:
        return _field(row.fields[0], problem, layout)
    if (from_layout := getattr(derived_layout, row.derived, None)) is not None:
        return from_layout(problem, layout)
    module = derived_model if hasattr(derived_model, row.derived) else derived_position
    return getattr(module, row.derived)(problem)


def _field(path: str, problem: Problem, layout: Layout) -> Any:
    """The plan field at ``path``; None where a part of the path is absent."""
    root, *names = path.split(".")
    noun: Any = layout if root == "layout" else getattr(problem, root)
    for name in names:
        if noun is None:
            return None
        noun = getattr(noun, name)
    return noun


def _words(value: Any) -> tuple[str, ...]:
    """Values as words: floats as the shortest text that reads back the same."""
    if value is True:
        return ()
    if isinstance(value, tuple):
        return tuple(str(item) for item in value)
    return (repr(value) if isinstance(value, float) else str(value),)
