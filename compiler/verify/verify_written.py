"""Compare the files of a directory with what ``parc.lock`` says was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import Malformed, read_lock
from parc.compiler.verify.required_files import LOCK

OWN = "lock_digest"
SHOWN = 3
"""Files that are named in one finding; the rest is counted."""
AGAIN = "run parc compile again"


def verify_written(contents: Mapping[str, bytes], sink: Sink) -> None:
    """A10 for files that were changed, A11 for a lock that cannot tell, A12 for files of others.

    Runs after ``verify_artifacts``, which reports a lock that cannot be read and files that it
    lists in vain. A changed file that has a finding by then gets no other.

    Args:
        contents: path -> bytes of every file in the directory.
        sink: where findings go, those of the second route among them.
    """
    if LOCK not in contents:
        message = f"{LOCK} is missing: nothing tells what was written"
        sink.report("A03", message, span=Span(LOCK, 1, 1))
        return
    try:
        lock = read_lock(contents[LOCK].decode("utf-8", "replace"))
    except Malformed:
        return
    listed = lock.get("files")
    if listed is None and OWN not in lock:
        message = f"{LOCK} has no digests of the files, so edits of most numbers go unseen"
        sink.report("A11", Finding(message, fix=AGAIN), span=Span(LOCK, 1, 1))
        return
    listed = listed or {}
    known = {found.span.file for found in sink.diagnostics if found.span}
    line_ends = []
    for file, data, digest in _digested(contents, lock, listed):
        if _digest(data) == digest:
            continue
        if _digest(data.replace(b"\r\n", b"\n")) == digest:
            line_ends.append(file)
        elif file not in known:
            message = f"{file} is not as it was written: {LOCK} has another digest of it"
            fix = AGAIN if file == LOCK else f"make the change in the spec and {AGAIN}"
            sink.report("A10", Finding(message, fix=fix), span=Span(file, 1, 1))
    _report_line_ends(line_ends, sink)
    _report_foreign(contents, {*listed, LOCK}, sink)


def _digested(
    contents: Mapping[str, bytes], lock: dict[str, Any], listed: Mapping[str, str]
) -> Iterator[tuple[str, bytes, str]]:
    """(file, the bytes that the digest is of, the digest in the lock), the lock itself last."""
    for file in sorted(listed):
        if file in contents:
            yield file, contents[file], listed[file]
    own = str(lock.get(OWN))
    empty = contents[LOCK].replace(b'"%b"' % own.encode("utf-8", "replace"), b'""', 1)
    yield LOCK, empty, own


def _report_line_ends(files: Sequence[str], sink: Sink) -> None:
    """One finding for all: they were copied as text, and nobody edited them."""
    if files:
        message = f"files have CRLF line ends and had LF when they were written: {_some(files)}"
        help_ = "git's core.autocrlf does this, or a copy through Windows; bash runs no such script"
        fix = f"copy the folder as it is (git: '* -text' in .gitattributes), or {AGAIN}"
        sink.report("A10", Finding(message, help=help_, fix=fix))


def _report_foreign(contents: Mapping[str, bytes], ours: set[str], sink: Sink) -> None:
    """Files under the names of ours. What has a name of its own, as logs do, is left alone."""
    names = set(map(_name, ours))
    foreign = sorted(file for file in contents if file not in ours and _name(file) in names)
    if foreign:
        message = f"there are files that PARC did not write: {_some(foreign)}"
        help_ = "the next parc compile removes what stands under the names of its own files"
        sink.report("A12", Finding(message, help=help_, fix="move them out of the folder"))


def _name(path: str) -> str:
    """``slurm`` of ``slurm/job.sbatch``, ``plan`` of ``plan.json``: as the writer knows its own."""
    return path.partition("/")[0].partition(".")[0]


def _some(files: Iterable[str]) -> str:
    names = [file if file.isprintable() else ascii(file) for file in files]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()
