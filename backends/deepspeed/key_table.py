"""The keys of both JSON files of one layout, from the key table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parc.backends.deepspeed import derived_config, derived_program
from parc.backends.deepspeed.versions import knows
from parc.compiler.ir import Layout, Problem

DS_CONFIG, TRAIN, IGNORED = "ds_config", "train", "ignored"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One row of flags.yaml."""

    key: str
    """Dotted path in the JSON file."""
    file: str
    """``ds_config`` or ``train``."""
    fields: tuple[str, ...]
    """Plan fields that it speaks for."""
    derived: str
    """Name of the function that computes the value; empty: the first field, or the constant."""
    constant: Any
    since: str | None
    until: str | None


@cache
def key_table() -> tuple[KeyRow, ...]:
    """All rows, in the order of the table."""
    return tuple(
        KeyRow(
            key=key,
            file=file,
            fields=tuple(row.get("from", ())),
            derived=row.get("value", ""),
            constant=row.get("set"),
            since=row.get("since"),
            until=row.get("until"),
        )
        for file in (DS_CONFIG, TRAIN)
        for key, row in _read()[file].items()
    )


@cache
def ignored_fields() -> dict[str, str]:
    """Plan fields that no key speaks for, with the reason."""
    return dict(_read()[IGNORED])


@cache
def _read() -> dict[str, dict[str, Any]]:
    from ruamel.yaml import YAML

    text = (files("parc.backends.deepspeed") / "flags.yaml").read_text("utf-8")
    table: dict[str, dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    return table


def tree(file: str, problem: Problem, layout: Layout) -> dict[str, Any]:
    """All keys of ``file`` (``ds_config`` or ``train``), nested; what says nothing is left out."""
    version = problem.version("deepspeed")
    found: dict[str, Any] = {}
    for row in key_table():
        if row.file == file and knows(version, row.since, row.until):
            value = _value(row, problem, layout)
            if value is not None:
                _put(found, row.key.split("."), value)
    return found


def _value(row: KeyRow, problem: Problem, layout: Layout) -> Any:
    if row.constant is not None:
        return row.constant
    if not row.derived:
        return _field(row.fields[0], problem, layout)
    module = derived_config if row.file == DS_CONFIG else derived_program
    return getattr(module, row.derived)(problem, layout)


def _field(path: str, problem: Problem, layout: Layout) -> Any:
    """The plan field at ``path``; None where a part of the path is absent."""
    root, *names = path.split(".")
    noun: Any = layout if root == "layout" else getattr(problem, root)
    for name in names:
        if noun is None:
            return None
        noun = getattr(noun, name)
    return noun


def _put(found: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        found = found.setdefault(name, {})
    found[last] = value
