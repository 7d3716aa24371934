"""Importer of commands and scripts with ``minserve serve``: model, layout and limits."""

from __future__ import annotations

from itertools import pairwise

from parc.backends.shared.field_table import flag_table
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.tools.importers.flags import (
    flags_in_statements,
    load_import_table,
    set_spec_field,
    take_flags,
    whole_number,
)
from parc.compiler.tools.importers.formats import BackendImporters, LaunchLines
from parc.compiler.tools.importers.shell_words import Word, shell_words
from parc.compiler.tools.importers.unread_parts import report_unread_parts
from parc.compiler.topology.readers.reader_state import Fragment, Reading
from parc.compiler.topology.readers.registry import FileFormat
from parc_minserve.script import PROCESSES

TABLE = load_import_table(__package__ or "")
FLAGS = {row.setting: row for row in flag_table(__package__ or "").rows}
"""All flags of Minserve."""


def starts_minserve(words: list[Word]) -> bool:
    """Return True if ``words`` include the command ``minserve serve``."""
    return any(
        one.text.endswith("minserve") and after.text == "serve" for one, after in pairwise(words)
    )


def read_words(words: list[Word], reading: Reading) -> None:
    """Set the fields of the spec that the flags among ``words`` set.

    The caller reports the flags that have no field (I04).
    """
    known = (*TABLE.rows, "--port")  # the script starts a process with --port alone
    unknown = take_flags(flags_in_statements(words, known), TABLE.rows, reading)
    if reading.spec:
        reading.spec["job"] = {"kind": "serve", **reading.spec.get("job", {})}
    ports = [flag for flag in unknown if flag.name == "--port" and whole_number(flag.value)]
    if ports:  # each further process of a host uses the next port
        first = min(ports, key=lambda flag: int(flag.value))
        set_spec_field(reading, "launch.port", int(first.value), first)
    for flag in unknown:
        # PARC derives the flags of single processes from the layout.
        if flag.name in FLAGS and FLAGS[flag.name].group == PROCESSES:
            reading.account(flag.word.span)


def read_minserve(text: str, name: str, sink: Sink) -> Fragment | None:
    """Return the fragment of a script or command; None after an error."""
    reading = Reading(text, name, sink)
    words = shell_words(text, name)
    read_words(words, reading)
    report_unread_parts(words, reading)
    if not reading.spec and reading.is_valid:
        finding = Finding("this file has no flag of Minserve", help="such as --tensor-parallel 8")
        reading.report_error("I02", finding, reading.span())
    return reading.fragment()


FORMAT = FileFormat(
    read_minserve, "command of Minserve, or a script with it", (r"\bminserve serve\b",)
)
IMPORTERS = BackendImporters({"minserve-args": FORMAT}, LaunchLines(starts_minserve, read_words))
