"""Import formats that a backend declares, so that ``parc import`` can read its launch files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from parc.backends.registry import all_declarations
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.topology.readers.reader_state import Reading
from parc.compiler.topology.readers.registry import FileFormat


@frozen
class LaunchLines:
    """Reader of a framework's launch lines in a batch script.

    The directives of the script are read by ``read_sbatch``.
    """

    recognizes: Callable[[list[Word]], bool]
    """Return True if the words of a script launch the framework."""
    read: Callable[[list[Word], Reading], None]
    """Add the spec fields that the flags in the words set."""


@frozen
class FrameworkSettings:
    """Settings of a framework in a launch file, for ``parc diff``."""

    framework: str
    """Name of the backend."""
    read: Callable[[str, str], Mapping[str, str]]
    """Return setting -> value for the text of a file with the given name; empty if the text has no
    settings of the framework. A setting without a value has an empty text."""
    defaults: Mapping[str, str]
    """Setting -> value that the framework uses if a launch does not have the setting."""


@frozen
class BackendImporters:
    """Formats of launch files that one backend can import."""

    formats: Mapping[str, FileFormat]
    """KIND argument of ``parc import`` -> format, in the order in which ``auto`` tries them."""
    launch_lines: LaunchLines | None = None
    settings: FrameworkSettings | None = None


@cache
def importers_by_backend() -> tuple[BackendImporters, ...]:
    """Return the import formats of each backend that can import launch files."""
    return tuple(
        one.module(module).IMPORTERS for one in all_declarations() for module in one.importers
    )


def importable_launches() -> str:
    """Return the descriptions of all launch files that PARC can import, as text for messages."""
    return "; ".join(
        one.description for backend in importers_by_backend() for one in backend.formats.values()
    )
