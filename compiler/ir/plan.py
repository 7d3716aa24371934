"""Result of a compile, and the part of it that a lock file stores.

Plan: the chosen layout, its cost and placement, and the runners-up.

Locked plan: enough to run the plan of a training or serving layout again on the same hosts.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir.estimate import Estimate
from parc.compiler.ir.layout import Layout
from parc.compiler.ir.placement import Placement
from parc.compiler.ir.problem import Problem
from parc.compiler.ir.serving import ServingLayout


@dataclass(frozen=True, slots=True)
class Candidate:
    """Layout that was evaluated with the cost model."""

    layout: Layout
    step_seconds: float
    peak_bytes: float
    mfu: float
    placed_seconds: float = 0.0
    """Seconds per step that the best host order found adds; 0 if no order was tried."""


@dataclass(frozen=True, slots=True)
class Search:
    """Statistics of the search: layouts enumerated, layouts dropped per rule, best candidates."""

    enumerated: int
    dropped: tuple[tuple[str, int], ...]
    """(rule code, count) pairs, sorted by code; a layout counts for the first rule it violates."""
    ranked: tuple[Candidate, ...]
    """Best candidates, fastest first; the first is the chosen layout."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Complete result of a compile; the only input of the backends."""

    problem: Problem
    layout: Layout
    estimate: Estimate
    placement: Placement
    search: Search


@dataclass(frozen=True, slots=True)
class Artifact:
    """Output file: ``path`` is relative with forward slashes, ``text`` ends in a newline."""

    path: str
    text: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class LockedPlan:
    """A layout and the hosts on which it was placed."""

    layout: Layout | ServingLayout
    hosts: tuple[str, ...]
    """Host name of every node rank."""
    ranks_per_node: int
    unavailable: tuple[str, ...]
    """Hosts that were unavailable or drained when the lock was written."""
