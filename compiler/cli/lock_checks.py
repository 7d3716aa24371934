"""Comparison of a plan with the parc.lock of the output directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import AnyPlan, Layout, LockedPlan
from parc.compiler.report.json.decisions import LockUnreadable, changed_decisions, decisions
from parc.compiler.report.json.locked_plan import locked_plan
from parc.compiler.report.json.plan_json import LOCK_PATH, lock_document
from parc.compiler.topology.hostlist import compress

MAX_SHOWN = 8
"""Listed decisions; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Lock file of a directory, as far as it can be read."""

    path: str
    decisions: dict[str, Any] | None
    plan: LockedPlan | None
    """None if the decisions do not form a complete plan."""
    why: str = ""
    """Problem with the file, as the end of a sentence; empty if there is none."""

    @classmethod
    def read(cls, directory: Path) -> Lock:
        """Read the lock of ``directory``; defects of the file are stored in ``why``."""
        file = directory / LOCK_PATH
        path = file.as_posix()
        try:
            text = file.read_bytes().decode("utf-8", "replace")
            found = decisions(text)
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


def compare_decisions(lock: Lock, plan: AnyPlan, sink: Sink) -> None:
    """Report O02 if decisions of ``plan`` differ from the lock, O03 if there is no usable lock."""
    if lock.decisions is None:
        sink.report("O03", Finding(f"{lock.path} {lock.why}"))
        return
    changes = list(changed_decisions(lock.decisions, lock_document(plan)["decisions"]))
    if changes:
        more = f"; {MAX_SHOWN} are shown" if len(changes) > MAX_SHOWN else ""
        finding = Finding(
            f"decisions that differ from {lock.path}: {len(changes)}{more}",
            help=_suggest_replan(lock.plan, plan),
            causes=tuple(Cause(path, text) for path, text in changes[:MAX_SHOWN]),
            fix="pin the old values under layout, or compile without --locked to accept the new",
        )
        sink.report("O02", finding)


def _suggest_replan(locked: LockedPlan | None, plan: AnyPlan) -> str:
    """Suggest a replan if hosts of the lock are unavailable now; it moves the fewest ranks."""
    if locked is None:
        return ""
    cluster = plan.problem.cluster
    usable = {host.name for host in (*cluster.hosts, *cluster.spare)}
    gone = [name for name in locked.hosts if name not in usable]
    if not gone or not set(gone) <= set(cluster.unavailable):
        return ""
    return f"parc replan --drain '{compress(gone)}' moves no other ranks"


def compare_hosts(lock: Lock, plan: AnyPlan, sink: Sink) -> None:
    """Report O04 if the same layout gets other hosts than in the lock, or drained hosts again."""
    locked = lock.plan
    # Without host names in the spec, the hosts of both plans are placeholders.
    if locked is None or not plan.problem.cluster.named:
        return
    hosts = [host.name for host in plan.placement.hosts]
    back = [name for name in locked.unavailable if name in set(hosts)]
    moved = _count_moved(locked, plan, hosts) if _same_layout(locked, plan) else 0
    if not moved and not back:
        return
    each, world = plan.placement.ranks_per_node, plan.placement.dense.world
    drained = f"; drained hosts get ranks again: {compress(back)}" if back else ""
    finding = Finding(
        f"{moved * each:,} of {world:,} ranks are on other hosts than in {lock.path}{drained}",
        label="without --locked, a compile places ranks from the spec only",
        help="to keep the hosts: parc compile --locked; to move one host: parc replan --drain",
        fix=f"cluster.unavailable: ['{compress(back)}']" if back else "",
    )
    sink.report("O04", finding)


def _same_layout(locked: LockedPlan, plan: AnyPlan) -> bool:
    layout = plan.layout
    if locked.ranks_per_node != plan.placement.ranks_per_node:
        return False
    if isinstance(layout, Layout) and isinstance(locked.layout, Layout):
        return replace(layout, order=locked.layout.order) == locked.layout
    return layout == locked.layout


def _count_moved(locked: LockedPlan, plan: AnyPlan, hosts: Sequence[str]) -> int:
    """Return the number of node ranks with another host."""
    pairs = zip(locked.hosts, hosts, strict=True)
    return sum(old != new for old, new in pairs)
