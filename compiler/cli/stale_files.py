"""Checks of the output directory: files that are out of date, and manual edits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Artifact
from parc.compiler.writer import foreign_names, stale_paths

MAX_SHOWN = 20
"""Listed files; further ones are only counted."""


def compare_files(artifacts: Sequence[Artifact], directory: Path, sink: Sink) -> None:
    """Report O01 if the content of ``directory`` differs from ``artifacts``."""
    stale = stale_paths(artifacts, directory)
    if not stale:
        return
    wanted = {artifact.path for artifact in artifacts}
    edited = [path for path in edited_files(directory) if path in stale]
    foreign = foreign_names({PurePosixPath(path).parts[0] for path in stale}, wanted)
    away = f"move {_join_limited(foreign)} out of {directory.as_posix()}, " if foreign else ""
    finding = Finding(
        f"files in {directory.as_posix()} that differ from the output of the spec: {len(stale)}",
        label=_join_limited([f"{path}{_stale_reason(path, directory, wanted)}" for path in stale]),
        help=f"edited after the compile: {_join_limited(edited)}" if edited else "",
        fix=f"{away}run parc compile without --check and commit the result",
    )
    sink.report("O01", finding)


def report_edits(artifacts: Sequence[Artifact], directory: Path, sink: Sink) -> None:
    """Report O05 if a compile overwrites manual edits."""
    edited = edited_files(directory)
    lost = sorted(set(edited) & set(stale_paths(artifacts, directory))) if edited else []
    if lost:
        message = f"manual edits in {directory.as_posix()} are overwritten: {_join_limited(lost)}"
        fix = "make the change in the spec and compile again"
        sink.report("O05", Finding(message, fix=fix))


def edited_files(directory: Path) -> list[str]:
    """Return the files whose checksum differs from the lock; empty without checksums."""
    from parc.compiler.report.json.directory import read_written
    from parc.compiler.verify.verify_written import verify_written

    # The verifier of written files reports each edited file as A10; its findings are not shown.
    sink = Sink()
    verify_written(read_written(directory), sink)
    return [one.span.file for one in sink.diagnostics if one.code == "PARC-A10" and one.span]


def _stale_reason(path: str, directory: Path, wanted: set[str]) -> str:
    """Return why a file is out of date, in parentheses; empty if its content differs."""
    if path not in wanted:
        return " (not part of the output)"
    file = directory / path
    if file.is_symlink():
        return " (a link)"
    if file.is_file():
        return " (CRLF line endings)" if _has_crlf(file) else ""
    return " (not a file)" if file.exists() else " (missing)"


def _has_crlf(file: Path) -> bool:
    try:
        return b"\r\n" in file.read_bytes()
    except OSError:
        return False


def _join_limited(files: Sequence[str]) -> str:
    more = f" and {len(files) - MAX_SHOWN} more" if len(files) > MAX_SHOWN else ""
    return ", ".join(files[:MAX_SHOWN]) + more
