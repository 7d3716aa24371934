"""Fields that the import of a server's command leaves open, instead of the engine's defaults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from parc.backends.shared.serving.import_service import engines_line
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.flags import FlagField, LaunchFlag
from parc.compiler.tools.importers.open_fields import (
    OpenFields,
    find_open_fields,
    remove_values,
    unknown_arguments,
)
from parc.compiler.tools.importers.shell_words import Word, statements
from parc.compiler.topology.readers.reader_state import Reading


@frozen
class ServerFlags:
    """Flags of an engine, as far as an import needs them to find open fields."""

    title: str
    """Name of the engine in PARC's scripts."""
    table: Mapping[str, FlagField]
    """Flag -> spec field that it sets."""
    known: Mapping[str, Mapping[str, Any]]
    """Rows of known_flags.json, by flag."""
    subjects: Mapping[str, str]
    """Spec field -> regular expression of older flags that can set it."""
    servers: Collection[str]
    """Words that start the server, such as ``serve``."""


def open_fields_of_server(
    flags: Collection[LaunchFlag], words: list[Word], engine: ServerFlags, reading: Reading
) -> OpenFields:
    """Return the spec fields whose values the command of a server leaves unknown.

    Values of earlier flags are removed from the fragment if a later flag of the same field has an
    unknown value. ``flags`` are the flags of the server, and ``words`` those of the script.
    """

    def value_count(flag: LaunchFlag) -> int:
        row = engine.table.get(flag.name)
        if row is not None and row.kind == "set":
            return 0
        takes = engine.known.get(flag.name, {}).get("takes", 1)
        return takes if isinstance(takes, int) else 1 if takes == "?" else len(flag.values)

    own = engines_line(engine.title).search(reading.text) is not None
    # PARC's script passes arguments between its own functions.
    commands = () if own else _argument_lists(flags, words, engine.servers)
    arguments = unknown_arguments(flags, commands, value_count, reading.text)
    opened = find_open_fields(flags, engine.table, engine.subjects, arguments, reading)
    remove_values(reading.spec, opened)
    return opened


def _argument_lists(
    flags: Collection[LaunchFlag], words: list[Word], servers: Collection[str]
) -> Iterator[list[Word]]:
    """Yield the words of each command or array that can be arguments of the server.

    The first argument can be the model, which is not a flag.
    """
    own = {flag.word.statement for flag in flags}
    for statement in statements(words):
        starts = [at for at, word in enumerate(statement) if _names_server(word, servers)]
        if starts and (not own or statement[0].statement in own):
            yield statement[starts[-1] + 2 :]
        elif statement[0].statement in own:
            first = next(at for at, word in enumerate(statement) if word.is_flag)
            yield statement[first:]


def _names_server(word: Word, servers: Collection[str]) -> bool:
    return word.text.rpartition("/")[2] in servers
