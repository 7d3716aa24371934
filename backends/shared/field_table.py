"""Tables of the backends, which map plan fields to the settings of a framework.

A row is ``setting: {from: [plan fields], value: function, set: constant, since, until, free}``. The
setting gets the constant in ``set``, the result of the function in ``value``, or else the value of
the first plan field. If that value is None, the setting is left out. ``fields.yaml`` contains rows,
``flags.yaml`` groups of rows. Both also list the plan fields that have no setting, with the reason:
under ``elsewhere`` if they reach the framework in another way, otherwise under ``ignored``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.frozen import frozen

UNMAPPED = ("elsewhere", "ignored")
NOT_EMITTED = (*UNMAPPED, "imported")
"""Sections of flags.yaml that are not groups of settings."""
Derived = Mapping[str, Callable[[Problem, Layout], Any]]


@frozen
class FieldRow:
    """A row of a table: one setting of the framework."""

    setting: str
    """Name in the framework: a flag, or a key with dots between sections."""
    group: str
    """Group of the row; empty in a table without groups."""
    fields: tuple[str, ...]
    """Plan fields that the setting depends on."""
    derived: str
    """Name of the function that computes the value; empty if the value is a constant or a field."""
    constant: Any
    since: str | None
    until: str | None
    free: bool = False
    """True if ``launch.args`` may override the setting."""

    def exists_in(self, version: str) -> bool:
        """Return True if ``version`` of the framework has this setting."""
        return is_in_range(version, self.since, self.until)


@frozen
class FieldTable:
    """Settings of a framework in the order of the file, and plan fields without a setting."""

    rows: tuple[FieldRow, ...]
    ignored: dict[str, str]
    """Plan field -> why it has no setting."""

    def of_group(self, name: str) -> FieldTable:
        """Return a table that contains only the rows of the group ``name``."""
        return FieldTable(tuple(row for row in self.rows if row.group == name), self.ignored)

    def settings(
        self, problem: Problem, layout: Layout, version: str, derived: Derived
    ) -> dict[str, Any]:
        """Return the settings that ``version`` of the framework has, as name -> value.

        Settings whose value is None are left out. ``derived`` maps names to the functions that
        compute values.
        """
        values = self.rows_with_values(problem, layout, version, derived)
        return {row.setting: value for row, value in values}

    def rows_with_values(
        self, problem: Problem, layout: Layout, version: str, derived: Derived
    ) -> Iterator[tuple[FieldRow, Any]]:
        """Yield (row of the table, value of its setting) for the settings that ``version`` has.

        Settings whose value is None are left out. ``derived`` maps names to the functions that
        compute values.
        """
        for row in self.rows:
            value = (
                _setting_value(row, problem, layout, derived) if row.exists_in(version) else None
            )
            if value is not None:
                yield row, value


def public_functions(*modules: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the public functions that ``modules`` define, by name.

    The rows of a table refer to these functions by name.
    """
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        # Names that a module imports are not its own functions.
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }


@cache
def field_table(package: str) -> FieldTable:
    """Return the table in ``fields.yaml`` of the Python package ``package``, without groups."""
    tree = _read_table_file(package, "fields.yaml")
    return _build_table(
        {"": {name: row for name, row in tree.items() if name not in UNMAPPED}}, tree
    )


@cache
def flag_table(package: str) -> FieldTable:
    """Return the table in ``flags.yaml`` of the Python package ``package``, with groups."""
    tree = _read_table_file(package, "flags.yaml")
    return _build_table(
        {name: rows for name, rows in tree.items() if name not in NOT_EMITTED}, tree
    )


def _read_table_file(package: str, file: str) -> dict[str, dict[str, Any]]:
    """Parse the YAML table ``file`` in ``package``."""
    text = (files(package) / file).read_text("utf-8")
    tree: dict[str, dict[str, Any]] = parse_table(text)
    return tree


def _build_table(groups: dict[str, dict[str, Any]], tree: dict[str, dict[str, Any]]) -> FieldTable:
    """Return the table with the rows in ``groups``.

    Args:
        groups: group name -> name of the setting -> YAML mapping that describes the setting.
        tree: the whole file, which also lists the plan fields that have no setting.
    """
    rows = (_build_row(group, name, row) for group in groups for name, row in groups[group].items())
    unmapped = {field: why for kind in UNMAPPED for field, why in tree.get(kind, {}).items()}
    return FieldTable(tuple(rows), unmapped)


def _build_row(group: str, name: str, row: dict[str, Any]) -> FieldRow:
    """Return the table row of the setting ``name``, parsed from the YAML mapping ``row``."""
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


def _setting_value(row: FieldRow, problem: Problem, layout: Layout, derived: Derived) -> Any:
    """Return the value that the plan gives to the setting that ``row`` describes.

    The value is a constant, the result of a function in ``derived``, or the value of a plan field.
    """
    if row.constant is not None:
        return row.constant
    if row.derived:
        return derived[row.derived](problem, layout)
    root, _, path = row.fields[0].partition(".")
    return (
        value_at_path(layout, path) if root == "layout" else value_at_path(problem, row.fields[0])
    )


def value_at_path(value: Any, path: str) -> Any:
    """Return the attribute of ``value`` at the dotted path ``path``, such as ``job.data``.

    Return None if an object on the path is None.
    """
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def nest_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as nested mappings, with one level per part of a dotted name.

    ``{"a.b": 1}`` becomes ``{"a": {"b": 1}}``.
    """
    tree: dict[str, Any] = {}
    for setting, value in settings.items():
        *sections, name = setting.split(".")
        parent = tree
        for section in sections:
            parent = parent.setdefault(section, {})
        parent[name] = value
    return tree
