"""The answer: the chosen layout, what it costs, where it runs, and what lost."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir.estimate import Estimate
from parc.compiler.ir.layout import Layout
from parc.compiler.ir.placement import Placement
from parc.compiler.ir.problem import Problem


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that was priced."""

    layout: Layout
    step_seconds: float
    peak_bytes: float
    mfu: float
    placed_seconds: float = 0.0
    """What the best arrangement of hosts that was found adds to a step; 0 where none was tried."""


@dataclass(frozen=True, slots=True)
class Search:
    """What was looked at: how many layouts, how many each rule dropped, the best of the rest."""

    enumerated: int
    dropped: tuple[tuple[str, int], ...]
    """(rule code, count), sorted by code; a layout counts under the first rule that dropped it."""
    ranked: tuple[Candidate, ...]
    """The best, fastest first; the first is the chosen one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided; backends read this and nothing else."""

    problem: Problem
    layout: Layout
    estimate: Estimate
    placement: Placement
    search: Search


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file to write: ``path`` is relative, with forward slashes; text ends in a newline."""

    path: str
    text: str
    executable: bool = False
