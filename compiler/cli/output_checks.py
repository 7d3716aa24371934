"""Checks of the output folder: outdated files, manual edits, differences from parc.lock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import AnyPlan, Artifact, Layout, LockedPlan
from parc.compiler.ir.frozen import frozen
from parc.compiler.report.json.locked_plan import (
    LockUnreadable,
    changed_decisions,
    locked_decisions,
    locked_plan,
)
from parc.compiler.report.json.plan_json import LOCK_PATH, lock_document
from parc.compiler.topology.hostlist import compress_hosts
from parc.compiler.writer import differing_paths, names_not_from_parc

MAX_FILES_SHOWN = 20
"""Maximum number of files to list; the other files are only counted."""


def compare_files(artifacts: Sequence[Artifact], directory: Path, sink: Sink) -> None:
    """Report that ``directory`` is out of date (O01) if its files differ from ``artifacts``."""
    stale = differing_paths(artifacts, directory)
    if not stale:
        return
    wanted = {artifact.path for artifact in artifacts}
    edited = [path for path in edited_files(directory) if path in stale]
    foreign = names_not_from_parc({PurePosixPath(path).parts[0] for path in stale}, wanted)
    # A compile refuses to replace a directory with files that PARC would never write.
    away = f"move {_join_paths(foreign)} out of {directory.as_posix()}, " if foreign else ""
    finding = Finding(
        f"{len(stale)} file{'s' * (len(stale) > 1)} in {directory.as_posix()} "
        f"differ{'s' * (len(stale) == 1)} from the output of the spec",
        label=_join_paths([f"{path}{_stale_reason(path, directory, wanted)}" for path in stale]),
        help=f"files edited after the compile: {_join_paths(edited)}" if edited else "",
        fix=f"{away}run parc compile without --check and commit the result",
    )
    sink.report("O01", finding)


def report_edits(artifacts: Sequence[Artifact], directory: Path, sink: Sink) -> None:
    """Report files in ``directory`` whose manual edits would be lost (O05).

    Only files that change when ``artifacts`` are written are reported.
    """
    edited = edited_files(directory)
    lost = sorted(set(edited) & set(differing_paths(artifacts, directory))) if edited else []
    if lost:
        message = f"manual edits in {directory.as_posix()} are overwritten: {_join_paths(lost)}"
        fix = "make the same changes in the spec and compile again"
        sink.report("O05", Finding(message, fix=fix))


def edited_files(directory: Path) -> list[str]:
    """Return the files in ``directory`` whose checksum differs from the one in ``parc.lock``.

    The list is empty if there is no lock file or if the lock file contains no checksums.
    """
    from parc.compiler.report.json.output_directory import read_locked_files
    from parc.compiler.verify.verify_checksums import verify_checksums

    # The verifier reports each edited file as A10; the findings themselves are not shown.
    sink = Sink()
    verify_checksums(read_locked_files(directory), sink)
    return [one.span.file for one in sink.diagnostics if one.code == "PARC-A10" and one.span]


def _stale_reason(path: str, directory: Path, wanted: set[str]) -> str:
    """Return the reason why a file is out of date, in parentheses, such as ``(missing)``.

    The text is empty if only the content of the file differs.
    """
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


def _join_paths(files: Sequence[str]) -> str:
    more = f" and {len(files) - MAX_FILES_SHOWN} more" if len(files) > MAX_FILES_SHOWN else ""
    return ", ".join(files[:MAX_FILES_SHOWN]) + more


MAX_CHANGES_SHOWN = 8
"""Maximum number of changed decisions to list; the other decisions are only counted."""


@frozen
class LockContent:
    """Content of the ``parc.lock`` in a directory. Parts that cannot be read are None."""

    path: str
    decisions: dict[str, Any] | None
    plan: LockedPlan | None
    """Plan in the lock; None if the decisions do not form a complete plan."""
    why: str = ""
    """Reason why the lock cannot be used, as the predicate of a sentence such as ``does not
    exist``. The text is empty if the lock can be used."""

    @classmethod
    def from_directory(cls, directory: Path) -> LockContent:
        """Read the ``parc.lock`` in ``directory``. A problem is stored in ``why``, not raised."""
        file = directory / LOCK_PATH
        path = file.as_posix()
        try:
            text = file.read_bytes().decode("utf-8", "replace")
            found = locked_decisions(text)
        except FileNotFoundError:
            return cls(path, None, None, "does not exist")
        except OSError as error:
            return cls(path, None, None, f"cannot be read: {error.strerror}")
        except LockUnreadable as error:
            return cls(path, None, None, f"cannot be used: {error}")
        try:
            return cls(path, found, locked_plan(text))
        except LockUnreadable as error:
            return cls(path, found, None, f"has no usable plan: {error}")


def compare_locked_decisions(lock: LockContent, plan: AnyPlan, sink: Sink) -> None:
    """Report decisions of ``plan`` that differ from those in the lock file (O02).

    If the lock file is missing or unusable, report only this problem (O03).
    """
    if lock.decisions is None:
        sink.report("O03", Finding(f"{lock.path} {lock.why}"))
        return
    changes = list(changed_decisions(lock.decisions, lock_document(plan)["decisions"]))
    if changes:
        more = f"; {MAX_CHANGES_SHOWN} are listed" if len(changes) > MAX_CHANGES_SHOWN else ""
        finding = Finding(
            f"{len(changes)} decision{'s' * (len(changes) > 1)} of the plan "
            f"differ{'s' * (len(changes) == 1)} from {lock.path}{more}",
            help=_suggest_replan(lock.plan, plan),
            causes=tuple(Cause(path, text) for path, text in changes[:MAX_CHANGES_SHOWN]),
            fix="set the old values under layout, or accept the new ones: compile without --locked",
        )
        sink.report("O02", finding)


def _suggest_replan(locked: LockedPlan | None, plan: AnyPlan) -> str:
    """Return the advice to run ``parc replan``; empty if a replan would not help.

    A replan moves only the ranks of unavailable hosts. The advice is therefore given only if the
    spec lists all unusable hosts of parc.lock as unavailable.
    """
    if locked is None:
        return ""
    cluster = plan.problem.cluster
    usable = {host.name for host in (*cluster.hosts, *cluster.spare)}
    gone = [name for name in locked.hosts if name not in usable]
    if not gone or not set(gone) <= set(cluster.unavailable):
        return ""
    return f"parc replan --drain '{compress_hosts(gone)}' moves only the ranks of these hosts"


def compare_hosts(lock: LockContent, plan: AnyPlan, sink: Sink) -> None:
    """Report ranks whose host differs from that in parc.lock, and drained hosts in use (O04).

    The hosts of ranks are compared only if the plan has the same layout as parc.lock.
    """
    locked = lock.plan
    # Without host names in the spec, the hosts of both plans are placeholders.
    if locked is None or not plan.problem.cluster.named:
        return
    hosts = [host.name for host in plan.placement.hosts]
    back = [name for name in locked.unavailable if name in set(hosts)]
    moved = _count_moved_node_ranks(locked, plan, hosts) if _same_layout(locked, plan) else 0
    if not moved and not back:
        return
    each, world = plan.placement.ranks_per_node, plan.placement.dense.world
    parts = [f"{moved * each:,} of {world:,} ranks are on other hosts than in {lock.path}"]
    if back:
        again = f"hosts that were unavailable in {lock.path} get ranks: {compress_hosts(back)}"
        parts = [*(parts if moved else ()), again]
    finding = Finding(
        "; ".join(parts),
        label="without --locked, parc compile places ranks by the spec and ignores parc.lock",
        help="to keep the hosts: parc compile --locked; to move one host: parc replan --drain",
        fix=_fix_of_unavailable_hosts(locked, plan, back) if back else "",
    )
    sink.report("O04", finding)


def _fix_of_unavailable_hosts(locked: LockedPlan, plan: AnyPlan, back: list[str]) -> str:
    """Return the edit that makes the hosts ``back`` unavailable again.

    Spare hosts that replace them in ``locked`` are no longer spare.
    """
    cluster = plan.problem.cluster
    hosts = f"cluster.unavailable: ['{compress_hosts([*cluster.unavailable, *back])}']"
    spare = [host.name for host in cluster.spare if host.name not in set(locked.hosts)]
    if len(spare) == len(cluster.spare):
        return hosts
    rest = f", and set cluster.spare: ['{compress_hosts(spare)}']" if spare else ""
    return f"remove cluster.spare, and set {hosts}{rest}"


def _same_layout(locked: LockedPlan, plan: AnyPlan) -> bool:
    layout = plan.layout
    if locked.ranks_per_node != plan.placement.ranks_per_node:
        return False
    if isinstance(layout, Layout) and isinstance(locked.layout, Layout):
        return replace(layout, order=locked.layout.order) == locked.layout
    return layout == locked.layout


def _count_moved_node_ranks(locked: LockedPlan, plan: AnyPlan, hosts: Sequence[str]) -> int:
    """Return the number of node ranks whose host differs from the one in parc.lock."""
    pairs = zip(locked.hosts, hosts, strict=True)
    return sum(old != new for old, new in pairs)
