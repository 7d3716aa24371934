"""Import formats that a backend declares, so that ``parc import`` can read its launch files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from parc.backends.registry import all_declared
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.topology.readers.reading import Reading
from parc.compiler.topology.readers.registry import Format


@dataclass(frozen=True, slots=True)
class LaunchLines:
    """Reader of the launch lines inside a batch script, whose directives have another reader."""

    recognizes: Callable[[list[Word]], bool]
    """Return True if the words contain a launch of the framework."""
    read: Callable[[list[Word], Reading], None]
    """Add the fields of the spec that the flags among the words set."""


@dataclass(frozen=True, slots=True)
class Importers:
    """Import formats of one backend."""

    formats: Mapping[str, Format]
    """KIND of ``parc import`` -> format, in the order in which ``auto`` tries them."""
    launch_lines: LaunchLines | None = None


@cache
def importers() -> tuple[Importers, ...]:
    """Return the import formats that backends declare."""
    return tuple(one.module(module).IMPORTERS for one in all_declared() for module in one.importers)
