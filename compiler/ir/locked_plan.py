"""The part of a plan that a lock file stores: enough to run it again on the same hosts.

A module of its own, because a lock may contain a training or a serving layout, and neither plan
module imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir.layout import Layout
from parc.compiler.ir.serving import ServingLayout


@dataclass(frozen=True, slots=True)
class LockedPlan:
    """A layout and the hosts on which it was placed."""

    layout: Layout | ServingLayout
    hosts: tuple[str, ...]
    """Host name of every node rank."""
    ranks_per_node: int
    unavailable: tuple[str, ...]
    """Hosts that were unavailable or drained when the lock was written."""
