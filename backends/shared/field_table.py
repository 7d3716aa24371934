"""The table of a backend, from plan fields to the settings of its target.

A row is ``setting: {from: [plan fields], value: function, set: constant, since, until, free}``.
Without ``value`` and ``set`` the first field is the value itself. ``null`` leaves a setting out.
``fields.yaml`` has rows alone, ``flags.yaml`` has groups of rows; both name under ``ignored`` the
fields that the target is not told, with the reason, and under ``elsewhere`` those that reach it
another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

from parc.backends.shared.versions import knows
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Layout, Problem

UNTOLD = ("elsewhere", "ignored")
NOT_EMITTED = (*UNTOLD, "imported")
"""Sections of flags.yaml that are no groups of settings."""
Derived = Mapping[str, Callable[[Problem, Layout], Any]]


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One setting."""

    setting: str
    """Its name in the target: a flag, or a key with dots between sections."""
    group: str
    """The group that it stands in; empty in a table without groups."""
    fields: tuple[str, ...]
    """Plan fields that it speaks for."""
    derived: str
    """Name of the function that computes it; empty: the first field, or the constant."""
    constant: Any
    since: str | None
    until: str | None
    free: bool = False
    """Whether a user's extra argument may stand in its place."""

    def known(self, version: str) -> bool:
        """Whether ``version`` of the target has the setting."""
        return knows(version, self.since, self.until)


@dataclass(frozen=True, slots=True)
class FieldTable:
    """All settings of a target, in the order of the file, and the plan fields it leaves out."""

    rows: tuple[FieldRow, ...]
    ignored: dict[str, str]
    """Plan field -> why no setting speaks for it."""

    def of_group(self, name: str) -> FieldTable:
        """The same table with the rows of one group alone."""
        return FieldTable(tuple(row for row in self.rows if row.group == name), self.ignored)

    def settings(
        self, problem: Problem, layout: Layout, version: str, derived: Derived
    ) -> dict[str, Any]:
        """Setting -> value, of those that ``version`` has; None is left out."""
        values = self.values(problem, layout, version, derived)
        return {row.setting: value for row, value in values}

    def values(
        self, problem: Problem, layout: Layout, version: str, derived: Derived
    ) -> Iterator[tuple[FieldRow, Any]]:
        """Rows that ``version`` has, with their values; None is left out."""
        for row in self.rows:
            value = _value(row, problem, layout, derived) if row.known(version) else None
            if value is not None:
                yield row, value


def functions_of(*modules: ModuleType) -> dict[str, Callable[..., Any]]:
    """The public functions that stand in ``modules``, by name: what rows may name."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }


@cache
def field_table(package: str) -> FieldTable:
    """The table of a backend without groups: ``fields.yaml`` in its package."""
    tree = _read(package, "fields.yaml")
    return _table({"": {name: row for name, row in tree.items() if name not in UNTOLD}}, tree)


@cache
def flag_table(package: str) -> FieldTable:
    """The table of a backend with groups: ``flags.yaml`` in its package."""
    tree = _read(package, "flags.yaml")
    return _table({name: rows for name, rows in tree.items() if name not in NOT_EMITTED}, tree)


def _read(package: str, file: str) -> dict[str, dict[str, Any]]:
    text = (files(package) / file).read_text("utf-8")
    tree: dict[str, dict[str, Any]] = parse_table(text)
    return tree


def _table(groups: dict[str, dict[str, Any]], tree: dict[str, dict[str, Any]]) -> FieldTable:
    rows = (_row(group, name, row) for group in groups for name, row in groups[group].items())
    untold = {field: why for kind in UNTOLD for field, why in tree.get(kind, {}).items()}
    return FieldTable(tuple(rows), untold)


def _row(group: str, name: str, row: dict[str, Any]) -> FieldRow:
    return FieldRow(
        setting=name,
        group=group,
        fields=tuple(row.get("from", ())),
        derived=row.get("value", ""),
        constant=row.get("set"),
        since=row.get("since"),
        until=row.get("until"),
        free=row.get("free", False),
    )


def _value(row: FieldRow, problem: Problem, layout: Layout, derived: Derived) -> Any:
    if row.constant is not None:
        return row.constant
    if row.derived:
        return derived[row.derived](problem, layout)
    root, _, path = row.fields[0].partition(".")
    return field_at(layout, path) if root == "layout" else field_at(problem, row.fields[0])


def field_at(noun: Any, path: str) -> Any:
    """The field of ``noun`` at a dotted path; None where a part of the path is absent."""
    for name in path.split("."):
        noun = None if noun is None else getattr(noun, name)
    return noun


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    tree: dict[str, Any] = {}
    for setting, value in settings.items():
        *sections, name = setting.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return tree
