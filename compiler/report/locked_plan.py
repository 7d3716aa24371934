"""What parc.lock says about a plan, read back into nouns."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Layout
from parc.compiler.ir.serialize import from_json
from parc.compiler.report.decisions import LockUnreadable, decisions

DERIVED_KEYS = ("hosts", "layout", "order", "ranks_per_node")


@dataclass(frozen=True, slots=True)
class LockedPlan:
    """A layout and the hosts that it was placed on."""

    layout: Layout
    hosts: tuple[str, ...]
    """By node rank."""
    ranks_per_node: int
    unavailable: tuple[str, ...]
    """Hosts that were out of use then."""


def locked_plan(text: str) -> LockedPlan:
    """The plan in the text of a parc.lock; LockUnreadable where it holds none."""
    found = decisions(text)
    missing = [key for key in DERIVED_KEYS if key not in found]
    if missing:
        raise LockUnreadable(f"it has no {missing[0]}")
    try:
        layout = from_json(Layout, found["layout"])
        hosts = from_json(tuple[str, ...], found["hosts"])
        each = from_json(int, found["ranks_per_node"])
        gone = from_json(tuple[str, ...], found.get("unavailable", []))
    except ValueError as error:
        raise LockUnreadable(str(error)) from None
    if each < 1 or len(hosts) * each != layout.world:
        raise LockUnreadable(f"{len(hosts)} hosts of {each} ranks are not {layout.world} ranks")
    return LockedPlan(layout, hosts, each, gone)
