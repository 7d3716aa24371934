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


def promised_files(
    lock: Mapping[str, Any], verifiers: Mapping[str, Verifier], serving: bool
) -> list[str]:
    """Return the files that ``lock`` lists, and those that its targets always emit.

    Locks of old versions list no files. The framework is in the versions of each lock, emitted or
    not, so that its verifier has no such files.
    """
    versions = lock["decisions"].get("versions")
    names = versions if isinstance(versions, dict) else {}
    files = [one.files for name, one in verifiers.items() if name in names]
    always = (one.always_serving if serving else one.always for one in files)
    return [*(file for some in always for file in some), *lock.get("files", ())]


def missing_files(
    artifacts: Mapping[str, str], verifiers: Iterable[Verifier]
) -> list[tuple[str, str]]:
    """Return (missing file, file that needs it)."""
    files = [one.files for one in verifiers]
    references = {file: text for one in files for file, text in one.references.items()}
    scripts = [
        (name, script)
        for one in files
        for script in one.scripts
        for name, text in references.items()
        if text in artifacts.get(script, "")
        and (not text.startswith("$here/") or _folder(name) == _folder(script))
    ]
    needs = (*scripts, *(pair for one in files for pair in one.required_by))
    return [(name, user) for name, user in needs if user in artifacts and name not in artifacts]


def _folder(path: str) -> str:
    return path.partition("/")[0]


def verify_lock(
    lock: dict[str, Any], hosts: list[str], derived: DerivedGroups | None, sink: Sink
) -> None:
    """Report A02 for another order of hosts and A05 for another rank order.

    Args:
        lock: the tree of ``parc.lock``.
        hosts: host names of the rank map by node rank.
        derived: groups that the framework's files configure; None if unknown.
        sink: receives the findings.
    """
    decided = lock["decisions"]
    locked = decided.get("hosts")
    if isinstance(locked, list) and locked != hosts:
        pairs = zip(locked, hosts, strict=False)
        first = next((n for n, (old, new) in enumerate(pairs) if old != new), None)
        label = f"{len(locked)} hosts in {LOCK}, {len(hosts)} in the rank map"
        if first is not None:
            label = (
                f"node rank {first}: {locked[first]!r:.60}, the rank map has {hosts[first]!r:.60}"
            )
        message = f"the hosts of {LOCK} differ from those of the rank map"
        sink.report("A02", Finding(message, label), span=Span(LOCK, 1, 1))
    if derived is not None and decided.get("order") != derived.order:
        found = f"{decided.get('order')!r:.60} in {LOCK}"
        message = f"order is {found}, {derived.file} configures {derived.order}"
        sink.report("A05", message, span=Span(LOCK, 1, 1))
