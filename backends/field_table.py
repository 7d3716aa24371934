"""A table from plan fields to the settings of a target, read from a backend's YAML.

A row is ``setting: {from: [plan fields], value: function, set: constant, since, until}``. Without
``value`` and ``set`` the first field is the value itself. ``null`` leaves a setting out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

from parc.compiler.ir import Layout, Problem

IGNORED = "ignored"
Derived = Mapping[str, Callable[[Problem, Layout], Any]]


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One setting."""

    setting: str
    """Its name in the target, with dots between sections."""
    fields: tuple[str, ...]
    """Plan fields that it speaks for."""
    derived: str
    """Name of the function that computes it; empty: the first field, or the constant."""
    constant: Any
    since: str | None
    until: str | None

    def known(self, version: str) -> bool:
        """Whether ``version`` of the target has the setting."""
        now = as_number(version)
        early = self.since is not None and now < as_number(self.since)
        late = self.until is not None and now > as_number(self.until)
        return not (early or late)


@dataclass(frozen=True, slots=True)
class FieldTable:
    """All settings of a target, in the order of the file, and the plan fields it leaves out."""

    rows: tuple[FieldRow, ...]
    ignored: dict[str, str]
    """Plan field -> why no setting speaks for it."""

    def settings(
        self, problem: Problem, layout: Layout, version: str, derived: Derived
    ) -> dict[str, Any]:
        """Setting -> value, of those that ``version`` has; None is left out."""
        values = {
            row.setting: _value(row, problem, layout, derived)
            for row in self.rows
            if row.known(version)
        }
        return {setting: value for setting, value in values.items() if value is not None}


def as_number(version: str) -> tuple[int, ...]:
    """``2.13`` -> (2, 13)."""
    return tuple(int(part) for part in version.split("."))


def functions_of(*modules: ModuleType) -> Derived:
    """The functions that stand in ``modules``, by name, for the rows of a table."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
    }


@cache
def field_table(package: str) -> FieldTable:
    """The table of a backend: ``fields.yaml`` in its package."""
    from ruamel.yaml import YAML

    text = (files(package) / "fields.yaml").read_text("utf-8")
    tree: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    rows = (_row(name, row) for name, row in tree.items() if name != IGNORED)
    return FieldTable(tuple(rows), dict(tree[IGNORED]))


def _row(name: str, row: dict[str, Any]) -> FieldRow:
    return FieldRow(
        setting=name,
        fields=tuple(row.get("from", ())),
        derived=row.get("value", ""),
        constant=row.get("set"),
        since=row.get("since"),
        until=row.get("until"),
    )


def _value(row: FieldRow, problem: Problem, layout: Layout, derived: Derived) -> Any:
    if row.constant is not None:
        return row.constant
    if row.derived:
        return derived[row.derived](problem, layout)
    root, *names = row.fields[0].split(".")
    noun: Any = layout if root == "layout" else getattr(problem, root)
    for name in names:
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
