"""Flags to fields of the spec, from the table that the flags are also emitted from.

A row of ``flags.yaml`` in the package of a backend names under ``import`` the field that its flag
sets: ``layout.tp`` for a whole number, or ``{field: how}``, where how is ``float``, ``text``,
``texts``, ``{set: value}`` or ``{words: {value of the flag: value of the field}}``. ``implied``
marks a flag that follows from other fields. The section ``imported`` has the flags that PARC reads
and never writes. Under ``spec`` a row names a field that its flag sets but that is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.tools.importers.flags import Row

IMPLIED = "implied"
IMPORT_ONLY = "imported"


@dataclass(frozen=True, slots=True)
class ImportTable:
    """Import side of the flag table of one backend."""

    rows: Mapping[str, Row]
    """Flag -> how to read it, in the order of the table, import-only flags last."""
    implied: frozenset[str]
    """Flags that follow from other fields, so that reading them adds nothing."""
    fields: dict[str, str]
    """Flag -> the spec field that it sets, also for flags that are not imported; not a section."""

    def flag_of(self) -> dict[str, str]:
        """Return spec field -> flag; the first flag of the table if several set one field."""
        return {field: flag for flag, field in reversed(self.fields.items())}


@cache
def import_table(package: str) -> ImportTable:
    """Return the table of ``flags.yaml`` in ``package``."""
    tree = parse_table((files(package) / "flags.yaml").read_text("utf-8"))
    entries = dict(_entries(tree))
    rows = {
        flag: _row(entry["import"])
        for flag, entry in entries.items()
        if entry.get("import", IMPLIED) != IMPLIED
    }
    fields = {
        flag: rows[flag].path if flag in rows else entry["spec"]
        for flag, entry in entries.items()
        if "spec" in entry or (flag in rows and "." in rows[flag].path)
    }
    implied = (flag for flag, entry in entries.items() if entry.get("import") == IMPLIED)
    return ImportTable(rows, frozenset(implied), fields)


def _entries(tree: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (flag, row); rows of the sections on left-out fields are texts, which have no flag."""
    for group, rows in tree.items():
        for flag, row in rows.items():
            if group == IMPORT_ONLY:
                yield flag, {"import": row}
            elif isinstance(row, Mapping):
                yield flag, row


def _row(given: str | Mapping[str, Any]) -> Row:
    if isinstance(given, str):
        return Row(given)
    ((field, how),) = given.items()
    if isinstance(how, str):
        return Row(field, how)  # type: ignore[arg-type]  # one of Kind: a test reads every table
    if "words" in how:
        return Row(field, "text", words=how["words"])
    return Row(field, "set", how["set"])
