"""Spec fields that an import leaves open instead of setting a framework's default.

A flag that is absent means the framework's default only if nothing else in the command can set the
field. Other parts of a command that can set it:

- a flag of the table whose value is known only at run time;
- a flag of an older version or of a fork of the framework, which its backend lists by spec field;
- arguments that are known only at run time, such as ``$@``, which can be any flag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from parc.compiler.diagnostics import Span
from parc.compiler.tools.importers.exported_variables import ARRAY
from parc.compiler.tools.importers.flags import FlagField, LaunchFlag
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.topology.readers.reader_state import Reading

_REDIRECTION = re.compile(r"[0-9&]?[<>]")
_NAME = re.compile(r"\$\{?(\w+)(?:\[[@*]\])?\}?")
"""Matches a word that is a variable or all items of an array; the group is its name."""
_CAN_BE_FLAG = re.compile(r"[$`](?!\w+/|\{\w+\}/)|\{\{|\}\}\{\{")
"""Matches a word that can be a flag: its start is unknown, and it is not a path below a folder."""
SHORTEST_START = 6
"""Fewest characters of a flag that counts as the start of a longer one."""


class OpenFields(set[str]):
    """Paths of spec fields whose values the launch leaves unknown.

    If the command has arguments that are known only at run time, each field without a flag is open.
    """

    def __init__(self, paths: Iterable[str], spans: Mapping[str, Span], passed: bool) -> None:
        """Create the set from single paths.

        Args:
            paths: spec fields that are open.
            spans: positions of the spec fields that the launch sets.
            passed: True if the command has arguments that are known only at run time.
        """
        super().__init__(paths)
        self._spans = spans
        self.has_unknown_arguments = passed

    def __contains__(self, path: object) -> bool:
        """Return True if the value of the spec field ``path`` is unknown."""
        return super().__contains__(path) or (
            self.has_unknown_arguments and path not in self._spans
        )


def set_defaults(
    section: dict[str, Any], name: str, defaults: Mapping[str, Any], opened: Collection[str]
) -> None:
    """Set the fields of ``section`` that the launch leaves at the defaults of its framework.

    ``name`` is the name of the section in the spec; fields in ``opened`` are not set.
    """
    for field, value in defaults.items():
        if f"{name}.{field}" not in opened:
            section.setdefault(field, value)


def find_open_fields(
    flags: Collection[LaunchFlag],
    table: Mapping[str, FlagField],
    subjects: Mapping[str, str],
    arguments: Collection[Word],
    reading: Reading,
) -> OpenFields:
    """Return the spec fields that the launch leaves unknown, and note unknown arguments.

    Args:
        flags: flags of the launch command, after the import of those in ``table``.
        table: flag -> spec field that it sets.
        subjects: spec field -> regular expression of the flags outside of ``table`` that can set
            it: flags of older versions, and of forks of the framework.
        arguments: words of the command that are known only at run time, and that are not values
            of flags.
        reading: spec fields that were read so far.
    """
    opened = {
        table[flag.name].path
        for flag in flags
        if flag.name in table
        and (
            table[flag.name].path not in reading.spans
            # Several flags of one field often belong to branches of the script.
            or any(word.dynamic for word in flag.values[:1])
        )
    }
    read = {path for field in reading.spans for path in (field, field.rpartition(".")[0])}
    for flag in flags:
        if flag.name not in table:
            opened |= set(fields_of_unread_flag(flag.name, table, subjects)) - read
    if arguments:
        texts = list(dict.fromkeys(word.text[:40] for word in arguments))
        first = min(arguments, key=lambda word: word.span.line)
        reading.leave_out(
            f"unknown arguments {', '.join(texts[:5])}",
            first.span,
            "fields that no flag sets stay open; without these arguments, set them to the defaults",
        )
    return OpenFields(opened, reading.spans, bool(arguments))


def remove_values(spec: dict[str, Any], paths: Iterable[str]) -> None:
    """Remove the fields at ``paths`` from a spec fragment: the last flag has an unknown value."""
    for path in paths:
        *above, last = path.split(".")
        node: Any = spec
        for key in above:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)


def fields_of_unread_flag(
    name: str, table: Mapping[str, FlagField], subjects: Mapping[str, str]
) -> list[str]:
    """Return the spec fields that a flag outside of the import table can set.

    Argument parsers accept an unambiguous prefix of a flag as that flag.
    """
    found = [path for path, pattern in subjects.items() if re.fullmatch(pattern, name)]
    longer = {row.path for flag, row in table.items() if flag.startswith(name)}
    return [*found, *(longer if len(longer) == 1 and len(name) >= SHORTEST_START else ())]


def unknown_arguments(
    flags: Collection[LaunchFlag],
    commands: Iterable[list[Word]],
    takes: Callable[[LaunchFlag], int],
    text: str,
) -> list[Word]:
    """Return the words of a command that can be flags and are known only at run time.

    These are words with unknown text that are not values of ``flags``.

    Args:
        flags: flags of the commands.
        commands: arguments of the program, and array assignments with arguments.
        takes: returns the number of values of a flag.
        text: script; arrays that it assigns are known.
    """
    values = {
        _position(value)
        for flag in flags
        for value in _values(flag, 0 if "=" in flag.word.text else takes(flag))
    }
    own = {_position(flag.word) for flag in flags}
    arrays = set(ARRAY.findall(text))
    found = []
    for command in commands:
        ends = (at for at, word in enumerate(command) if _REDIRECTION.match(word.text))
        for before, word in pairwise([None, *command[: next(ends, None)]]):
            if word is None or _CAN_BE_FLAG.match(word.text) is None or word.is_flag:
                continue
            # A flag of another program, such as -v of docker, is taken to have one value.
            other = before is not None and before.is_flag and _position(before) not in own
            name = _NAME.fullmatch(word.text)
            known = name is not None and name[1] in arrays
            if not (known or other or _position(word) in values):
                found.append(word)
    return found


def _position(word: Word) -> tuple[int, int]:
    return word.span.line, word.span.column


def _values(flag: LaunchFlag, number: int) -> Iterator[Word]:
    """Yield the words of the first ``number`` values; an expression of a template is one value."""
    inside = False
    for word in flag.values:
        if not inside:
            number -= 1
        if number < 0:
            return
        yield word
        opened, closed = word.text.rfind("{{"), word.text.rfind("}}")
        inside = opened > closed or (inside and closed < 0)
