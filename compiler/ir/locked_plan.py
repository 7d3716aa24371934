"""What a lock file keeps of a plan: enough to run it again on the same hosts."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir.layout import Layout
from parc.compiler.ir.serving import ServingLayout


@dataclass(frozen=True, slots=True)
class LockedPlan:
    """A layout and the hosts that it was placed on."""

    layout: Layout | ServingLayout
    hosts: tuple[str, ...]
    """By node rank."""
    ranks_per_node: int
    unavailable: tuple[str, ...]
    """Hosts that were out of use then."""
