"""Compare the hosts and the rank order of ``parc.lock`` with the rank map."""

from __future__ import annotations

from typing import Any

from parc.backends.verifier import DerivedGroups
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.required_files import LOCK


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
