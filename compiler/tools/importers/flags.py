"""Flags as fields of the spec, by a table; flags without a field are reported (I04).

The table is the one that the flags are also emitted from. A row of ``flags.yaml`` in the package of
a backend names under ``import`` the field that its flag sets: ``layout.tp`` for a whole number, or
``{field: how}``, where how is ``float``, ``text``, ``texts``, ``{set: value}`` or
``{words: {value of the flag: value of the field}}``. ``implied`` marks a flag that follows from
other fields. The section ``imported`` has the flags that PARC reads and never writes. Under
``spec`` a row names a field that its flag sets but that is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby, pairwise
from typing import Any, Literal

from parc.compiler.diagnostics import Finding
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.topology.readers.reading import Reading, some

TORCHRUN = {
    *("--nnodes", "--nproc-per-node", "--node-rank", "--master-addr", "--master-port"),
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--standalone"),
    *("--max-restarts", "--monitor-interval", "--start-method", "--event-log-handler", "--role"),
    *("--module", "--no-python", "--run-path", "--log-dir", "--redirects", "--tee"),
    *("--local-ranks-filter", "--duplicate-stdout-filters", "--duplicate-stderr-filters"),
    *("--local-addr", "--logs-specs", "--numa-binding", "--signals-to-handle"),
    *("--shutdown-timeout", "--virtual-local-rank"),
}
"""All flags of torchrun in torch 2.13 (torch/distributed/run.py, get_args_parser), with dashes."""
SRUN = {
    *("--ntasks-per-node", "--ntasks", "--kill-on-bad-exit", "--mpi", "--label", "--nodes"),
    *("--distribution", "--cpu-bind"),
}
"""Flags of srun(1) that are common in front of a launch."""
LAUNCHER = TORCHRUN | SRUN
Kind = Literal["int", "float", "positive", "text", "texts", "set"]
"""How to read the value of a flag; ``set``: the flag has no value and sets a constant."""


@dataclass(frozen=True, slots=True)
class Row:
    """Spec field that one flag sets, and how to read its value."""

    path: str
    """Spec field: ``layout.tp``."""
    kind: Kind = "int"
    value: Any = None
    """For ``set``: the constant."""
    words: Mapping[str, Any] | None = None
    """For ``text``: value of the flag -> value of the field."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Flag as written, with the words after it."""

    name: str
    word: Word
    values: tuple[Word, ...]


def written_flags(words: list[Word], known: Iterable[str]) -> list[Flag]:
    """Return the flags of statements that have one of ``known``, or start with a flag."""
    names = set(known)
    found: list[Flag] = []
    for _, group in groupby(words, key=lambda word: word.statement):
        statement = list(group)
        named = any(word.text.partition("=")[0] in names for word in statement)
        if named or statement[0].is_flag:
            found += _flags(statement)
    return found


def _flags(statement: list[Word]) -> list[Flag]:
    starts = [index for index, word in enumerate(statement) if word.is_flag]
    flags = []
    for start, end in pairwise([*starts, len(statement)]):
        word = statement[start]
        name, equals, rest = word.text.partition("=")
        values = statement[start + 1 : end]
        if equals:
            values = [Word(rest, word.span, word.statement), *values]
        flags.append(Flag(name, word, tuple(values)))
    return flags


def take_flags(flags: list[Flag], table: Mapping[str, Row], reading: Reading) -> list[Flag]:
    """Set the fields of the flags in ``table``; return the other flags."""
    unknown = []
    for flag in flags:
        row = table.get(flag.name)
        if row is None:
            unknown.append(flag)
        elif row.kind == "set":
            put(reading, row.path, row.value, flag)
        else:
            _take(flag, row, reading)
    return unknown


def _take(flag: Flag, row: Row, reading: Reading) -> None:
    if not flag.values:
        finding = Finding(f"{flag.name} has no value", "expected a value after this flag")
        reading.refuse("I02", finding, flag.word.span)
        return
    if any(word.dynamic for word in flag.values[: None if row.kind == "texts" else 1]):
        message = f"{flag.name} {flag.values[0].text[:40]} is computed at run time"
        reading.say(
            "I04", Finding(message, help=f"set {row.path} in the spec"), flag.values[0].span
        )
        return
    if row.kind == "texts":
        put(reading, row.path, [word.text for word in flag.values], flag)
        return
    value = _value(flag.values[0].text, row)
    if value is None and row.words is not None:
        message = f"not carried over: {flag.name} {flag.values[0].text[:40]}"
        finding = Finding(
            message, help=f"valid values of {row.path}: {', '.join(row.words.values())}"
        )
        reading.say("I04", finding, flag.values[0].span)
        return
    if value is None:
        wanted = "a whole number" if row.kind == "int" else "a number"
        message = f"{flag.name} is {flag.values[0].text[:40]!r}, expected {wanted}"
        reading.refuse("I02", message, flag.values[0].span)
        return
    put(reading, row.path, value, flag)


def _value(text: str, row: Row) -> Any:
    if row.kind == "int":
        return whole_number(text)
    if row.kind in ("float", "positive"):
        number = re.fullmatch(r"[0-9]{0,20}\.?[0-9]{1,20}(?:[eE][+-]?[0-9]{1,2})?", text)
        return float(text) if number else None
    return row.words.get(text) if row.words is not None else text


def whole_number(text: str) -> int | None:
    """Return ``text`` as a whole number; None for other texts and for more than 12 digits."""
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None


def put(reading: Reading, path: str, value: Any, flag: Flag) -> None:
    """Set a field of the fragment. Of several flags the last one wins, as in argparse."""
    *above, last = path.split(".")
    node = reading.spec
    for key in above:
        inner = node.setdefault(key, {})
        if not isinstance(inner, dict):
            inner = node[key] = {}
        node = inner
    node[last] = value
    reading.spans[path] = flag.word.span


def report_unknown(flags: list[Flag], why: str, reading: Reading) -> None:
    """Report each flag without a field (I04), and list all their names in a note.

    Flags of launchers are left out: PARC sets them from the hosts. ``why`` is the help text.
    """
    flags = [
        flag
        for flag in flags
        if flag.name.startswith("--") and flag.name.replace("_", "-") not in LAUNCHER
    ]
    for flag in flags:
        words = " ".join(word.text for word in (flag.word, *flag.values[:4]))
        reading.say("I04", Finding(f"not carried over: {words[:80]}", help=why), flag.word.span)
    names = list(dict.fromkeys(flag.name for flag in flags))
    if names:
        reading.notes.append(f"not carried over: {some(names, len(names))}"[:4000])


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
