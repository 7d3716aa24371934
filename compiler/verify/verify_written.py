"""Compare the files of a directory with the checksums in ``parc.lock``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import Malformed, read_lock
from parc.compiler.verify.verify_lock import LOCK

OWN = "lock_digest"
"""Key of the lock with the digest of the lock itself."""
SHOWN = 3
"""Files that a finding names; it counts the remaining ones."""
AGAIN = "run parc compile again"


def verify_written(contents: Mapping[str, bytes], sink: Sink) -> None:
    """Report A10 for changed files, A11 for a lock without checksums, A12 for foreign files.

    Runs after ``verify_artifacts``, which reports an unreadable lock and missing files. A changed
    file that has a finding by then gets no second one.

    Args:
        contents: path -> bytes of each file in the directory.
        sink: receives the findings; has those of ``verify_artifacts``.
    """
    if LOCK not in contents:
        message = f"{LOCK} is missing, so that changed files cannot be detected"
        sink.report("A03", message, span=Span(LOCK, 1, 1))
        return
    try:
        lock = read_lock(contents[LOCK].decode("utf-8", "replace"))
    except Malformed:
        return
    listed = lock.get("files")
    if listed is None and OWN not in lock:
        message = f"{LOCK} has no digests of the files, so that most edits cannot be detected"
        sink.report("A11", Finding(message, fix=AGAIN), span=Span(LOCK, 1, 1))
        return
    listed = listed or {}
    reported = {found.span.file for found in sink.diagnostics if found.span}
    line_ends = []
    for file, data, digest in _digested(contents, lock, listed):
        if _digest(data) == digest:
            continue
        if _digest(data.replace(b"\r\n", b"\n")) == digest:
            line_ends.append(file)
        elif file not in reported:
            message = f"{file} was changed after it was written: its digest differs from {LOCK}"
            fix = AGAIN if file == LOCK else f"make the change in the spec and {AGAIN}"
            sink.report("A10", Finding(message, fix=fix), span=Span(file, 1, 1))
    _report_line_ends(line_ends, sink)
    _report_foreign(contents, {*listed, LOCK}, sink)


def _digested(
    contents: Mapping[str, bytes], lock: dict[str, Any], listed: Mapping[str, str]
) -> Iterator[tuple[str, bytes, str]]:
    """Yield (file, digested bytes, digest in the lock), the lock last.

    The digest of the lock is computed with its own value left empty.
    """
    for file in sorted(listed):
        if file in contents:
            yield file, contents[file], listed[file]
    own = str(lock.get(OWN))
    empty = contents[LOCK].replace(b'"%b"' % own.encode("utf-8", "replace"), b'""', 1)
    yield LOCK, empty, own


def _report_line_ends(files: Sequence[str], sink: Sink) -> None:
    """Report one A10 for all files whose only change is CRLF, because a copy causes it."""
    if files:
        message = f"files have CRLF line ends but were written with LF: {_some(files)}"
        help_ = (
            "git's core.autocrlf or a copy through Windows does this; bash cannot run such scripts"
        )
        fix = f"copy the folder unchanged (git: '* -text' in .gitattributes), or {AGAIN}"
        sink.report("A10", Finding(message, help=help_, fix=fix))


def _report_foreign(contents: Mapping[str, bytes], ours: set[str], sink: Sink) -> None:
    """Report A12 for files under names that PARC uses; other files, such as logs, are allowed."""
    names = set(map(_top_name, ours))
    foreign = sorted(file for file in contents if file not in ours and _top_name(file) in names)
    if foreign:
        message = f"there are files that PARC did not write: {_some(foreign)}"
        help_ = "the next parc compile deletes all files under the names that PARC uses"
        sink.report("A12", Finding(message, help=help_, fix="move them out of the folder"))


def _top_name(path: str) -> str:
    """Return the first part of a path without extension, by which the writer decides as well."""
    return path.partition("/")[0].partition(".")[0]


def _some(files: Iterable[str]) -> str:
    names = [file if file.isprintable() else ascii(file) for file in files]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
