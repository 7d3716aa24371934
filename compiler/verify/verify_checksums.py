"""Compare ``parc.lock`` with the rank map and with the files of a directory.

The lock and the rank map must have the same hosts and rank order. A file is missing if a script,
another file or the lock refers to it. Edited files are detected by their checksums in the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from parc.backends.verifier import DerivedGroups, Verifier
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import MalformedFileError, read_lock

LOCK = "parc.lock"


def expected_files(
    lock: Mapping[str, Any], verifiers: Mapping[str, Verifier], serving: bool
) -> list[str]:
    """Return the files that ``lock`` lists, and the files that its targets always emit.

    The targets are the keys of ``versions`` in the lock. A key without a file in the lock is
    skipped, because a spec may set the version of a target that is not emitted. No key is skipped
    if the lock is of an old version, which does not list files.
    """
    versions, listed = lock["decisions"].get("versions"), lock.get("files")
    names = set(versions) if isinstance(versions, dict) else set()
    if listed is not None:
        names &= {file.partition("/")[0].partition(".")[0] for file in listed}
    files = [one.files for name, one in verifiers.items() if name in names]
    always = (one.always_serving if serving else one.always for one in files)
    return [*(file for some in always for file in some), *(listed or ())]


def missing_files(
    artifacts: Mapping[str, str], verifiers: Iterable[Verifier]
) -> list[tuple[str, str]]:
    """Return (missing file, file that refers to it) for each reference to a missing file."""
    files = [one.files for one in verifiers]
    # A file is needed if this text occurs in a script; $here stands for the folder of the script.
    references = {file: text for one in files for file, text in one.references.items()}
    scripts = [
        (name, script)
        for one in files
        for script in one.scripts
        for name, text in references.items()
        if text in artifacts.get(script, "")
        and (not text.startswith("$here/") or _top_folder(name) == _top_folder(script))
    ]
    needs = (*scripts, *(pair for one in files for pair in one.required_by))
    return [(name, user) for name, user in needs if user in artifacts and name not in artifacts]


def _top_folder(path: str) -> str:
    return path.partition("/")[0]


def verify_lock(
    lock: dict[str, Any], hosts: list[str], derived: DerivedGroups | None, sink: Sink
) -> None:
    """Compare hosts (A02) and rank order (A05) in ``parc.lock`` with the other emitted files.

    Args:
        lock: the tree of ``parc.lock``.
        hosts: host names of the rank map by node rank.
        derived: groups that the framework's files configure; None if unknown.
        sink: receives the findings.
    """
    decided = lock["decisions"]
    locked = decided.get("hosts")
    if isinstance(locked, list) and locked != hosts:
        # Not strict, because a lock with too few hosts must give a finding and no exception.
        pairs = zip(locked, hosts, strict=False)
        first = next((n for n, (old, new) in enumerate(pairs) if old != new), None)
        label = f"{LOCK} has {len(locked)} hosts, the rank map has {len(hosts)}"
        if first is not None:
            label = (
                f"node rank {first} is {locked[first]!r:.60} in {LOCK}, "
                f"but {hosts[first]!r:.60} in the rank map"
            )
        message = f"the hosts of {LOCK} differ from those of the rank map"
        sink.report("A02", Finding(message, label), span=Span(LOCK, 1, 1))
    if derived is not None and decided.get("order") != derived.order:
        found = f"{decided.get('order')!r:.60} in {LOCK}"
        message = f"the rank order is {found}, but {derived.file} configures {derived.order}"
        sink.report("A05", message, span=Span(LOCK, 1, 1))


OWN = "lock_digest"
"""Key in ``parc.lock`` whose value is the digest of ``parc.lock`` itself."""
SHOWN = 3
"""Maximum number of files that a finding names. Further files are only counted."""
AGAIN = "run parc compile again"


def verify_checksums(contents: Mapping[str, bytes], sink: Sink) -> None:
    """Report changed files (A10), a lock without checksums (A11), and files not from PARC (A12).

    Call this function after ``verify_artifacts``, which reports missing files and an unreadable
    lock. A changed file is not reported if ``sink`` already contains a finding in this file.

    Args:
        contents: path -> bytes of each file in the directory.
        sink: receives the findings; contains those of ``verify_artifacts``.
    """
    if LOCK not in contents:
        message = f"{LOCK} is missing, so changed files cannot be detected"
        sink.report("A03", message, span=Span(LOCK, 1, 1))
        return
    try:
        lock = read_lock(contents[LOCK].decode("utf-8", "replace"))
    except MalformedFileError:
        return
    listed = lock.get("files")
    if listed is None and OWN not in lock:
        message = f"{LOCK} has no checksums of the files, so most edits cannot be detected"
        sink.report("A11", Finding(message, fix=AGAIN), span=Span(LOCK, 1, 1))
        return
    listed = listed or {}
    # A contradiction explains more than a changed digest, so A10 is left out for such files.
    reported = {found.span.file for found in sink.diagnostics if found.span}
    line_ends = []
    for file, data, digest in _files_with_digests(contents, lock, listed):
        if _sha256_hex(data) == digest:
            continue
        line_ends += [file] if b"\r\n" in data else []
        if _digest_with_lf(data) != digest and file not in reported:
            message = f"{file} was changed after PARC wrote it: its checksum differs from {LOCK}"
            fix = AGAIN if file == LOCK else f"make the change in the spec, then {AGAIN}"
            sink.report("A10", Finding(message, fix=fix), span=Span(file, 1, 1))
    _report_line_ends(line_ends, sink)
    _report_files_not_from_parc(contents, {*listed, LOCK}, sink)


def files_with_changed_digest(contents: Mapping[str, bytes]) -> list[str]:
    """Return the paths of the files whose digest differs from the digest in ``parc.lock``.

    A file is not returned if only its line ends changed from LF to CRLF. The list is empty if the
    lock cannot be read.
    """
    try:
        lock = read_lock(contents[LOCK].decode("utf-8", "replace"))
    except (KeyError, MalformedFileError):
        return []
    return [
        file
        for file, data, digest in _files_with_digests(contents, lock, lock.get("files") or {})
        if file != LOCK and digest not in (_sha256_hex(data), _digest_with_lf(data))
    ]


def without_added_crlf(artifacts: Mapping[str, str]) -> dict[str, str]:
    """Return the files with LF line ends where a copy of the folder added CRLF.

    Files that have the digest of ``parc.lock`` stay the same, because PARC may have written a text
    of the user with CRLF.
    """
    if not any("\r\n" in text for text in artifacts.values()):
        return dict(artifacts)
    try:
        listed = read_lock(artifacts.get(LOCK, "")).get("files", {})
    except MalformedFileError:
        listed = {}
    return {
        file: text
        if "\r\n" not in text
        or _sha256_hex(text.encode("utf-8", "surrogatepass")) == listed.get(file)
        else text.replace("\r\n", "\n")
        for file, text in artifacts.items()
    }


def _digest_with_lf(data: bytes) -> str:
    return _sha256_hex(data.replace(b"\r\n", b"\n"))


def _files_with_digests(
    contents: Mapping[str, bytes], lock: dict[str, Any], listed: Mapping[str, str]
) -> Iterator[tuple[str, bytes, str]]:
    """Yield (file, bytes to digest, digest stored in the lock) for each file; the lock comes last.

    The digest of the lock is computed after replacing this digest by an empty string in the text of
    the lock.
    """
    for file in sorted(listed):
        if file in contents:
            yield file, contents[file], listed[file]
    # An edit of the lock changes the digest of the remaining text, so it is detected as well.
    own = str(lock.get(OWN))
    empty = contents[LOCK].replace(b'"%b"' % own.encode("utf-8", "replace"), b'""', 1)
    yield LOCK, empty, own


def _report_line_ends(files: Sequence[str], sink: Sink) -> None:
    """Report files that changed only from LF to CRLF line ends, in one diagnostic (A10).

    One diagnostic is enough, because a copy through Windows or git changes all files in this way.
    """
    if files:
        message = f"files have CRLF line ends but were written with LF: {_format_files(files)}"
        help_ = (
            "git's core.autocrlf or a copy through Windows adds CRLF, and bash cannot run scripts "
            "with it"
        )
        fix = f"copy the folder unchanged (git: '* -text' in .gitattributes), or {AGAIN}"
        sink.report("A10", Finding(message, help=help_, fix=fix))


def _report_files_not_from_parc(contents: Mapping[str, bytes], ours: set[str], sink: Sink) -> None:
    """Report files whose names are reserved for PARC, but that PARC did not write (A12).

    Files with other names, such as logs, are reported by ``report_other_names``.
    """
    names = set(map(_top_level_name, ours))
    foreign = sorted(
        file for file in contents if file not in ours and _top_level_name(file) in names
    )
    if foreign:
        message = f"the folder has files that PARC did not write: {_format_files(foreign)}"
        help_ = "the next parc compile deletes all files whose names PARC reserves"
        fix = "move these files out of the folder"
        sink.report("A12", Finding(message, help=help_, fix=fix))


def report_other_names(names: Sequence[str], sink: Sink) -> None:
    """Report files and folders with ``names`` that PARC does not use (A12).

    Their content is not read, because files such as logs may be large.
    """
    if names:
        message = f"the folder has files that PARC did not write: {_format_files(names)}"
        help_ = "parc compile does not write to a folder that contains files it did not write"
        fix = "move these files out of the folder before the next parc compile"
        sink.report("A12", Finding(message, help=help_, fix=fix))


def _top_level_name(path: str) -> str:
    """Return the first part of ``path`` without its extension.

    The writer uses the same name to decide whether a file belongs to PARC.
    """
    return path.partition("/")[0].partition(".")[0]


def _format_files(files: Iterable[str]) -> str:
    names = [file if file.isprintable() else ascii(file) for file in files]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _sha256_hex(data: bytes) -> str:
    return sha256(data).hexdigest()
