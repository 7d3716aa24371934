"""Compare ``parc.lock`` with the rank map, and find missing files.

The lock and the rank map must have the same hosts and rank order. A file is missing if a script,
another file or the lock refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from parc.backends.verifier import DerivedGroups, Verifier
from parc.compiler.diagnostics import Finding, Sink, Span

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
