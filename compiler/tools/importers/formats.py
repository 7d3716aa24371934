"""Import formats that a backend declares, so that ``parc import`` can read its launch files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from parc.backends.declaration import Declaration, JobKind
from parc.backends.registry import (
    all_declarations,
    backend_declaration,
    default_targets,
    reader_of_backend,
)
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
    return tuple(importers for _, importers in declared_importers())


@cache
def declared_importers() -> tuple[tuple[Declaration, BackendImporters], ...]:
    """Return (backend, its import formats) for each backend that can import launch files."""
    return tuple(
        (one, reader_of_backend(one, module, "IMPORTERS"))
        for one in all_declarations()
        for module in one.importers
    )


def targets_of_launch(spec: Mapping[str, Any], backend: Declaration) -> list[str]:
    """Return ``emit`` of a spec that was imported from a launch file of ``backend``.

    The result is empty if the spec sets the targets, or if those of a spec without ``emit`` contain
    the backend. A backend that does not determine the layout leaves the framework open.
    """
    default = default_targets(_job_kind(spec))
    if "emit" in spec or not backend.binds_layout or backend.name in default:
        return []
    return targets_with_launchers(spec, backend.name)


def targets_with_launchers(spec: Mapping[str, Any], *frameworks: str) -> list[str]:
    """Return ``frameworks`` and the launchers that a spec without ``emit`` is compiled for."""
    default = default_targets(_job_kind(spec))
    launchers = (one for one in default if not backend_declaration(one).binds_layout)
    return [*frameworks, *launchers]


def leave_framework_open(program: str, reading: Reading) -> None:
    """Set ``emit: []``, which no compile accepts, for a launch whose framework is unknown.

    Without ``emit``, a compile would write the arguments of the default framework for ``program``,
    which may not understand them.
    """
    reading.spec["emit"] = []
    reading.notes.append(
        f"emit is empty, because PARC does not recognize the framework of {program}: list its "
        "framework and the launchers in emit, such as [FRAMEWORK, slurm, torchrun]"
    )


def _job_kind(spec: Mapping[str, Any]) -> JobKind:
    return "serve" if spec.get("job", {}).get("kind") == "serve" else "train"


def importable_launches() -> str:
    """Return the descriptions of all launch files that PARC can import, as text for messages."""
    return "; ".join(
        one.description for backend in importers_by_backend() for one in backend.formats.values()
    )
