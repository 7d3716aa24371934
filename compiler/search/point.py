"""A layout of the search as nine numbers: a key that is cheap to build, compare and cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from parc.compiler.ir import Layout


class Degrees(NamedTuple):
    """Parallel sizes of one device mesh."""

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int


class Point(NamedTuple):
    """Parallel sizes, virtual pipeline size, micro-batch, and index of the recompute level.

    The first six fields are those of ``Degrees``. All other fields of a layout follow from these
    nine, or are the same in the whole space.
    """

    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    etp: int
    vpp: int
    micro_batch: int
    level: int = 0
    """Index into ``LayoutSpace.levels``, 0 for the least recompute."""

    @property
    def degrees(self) -> Degrees:
        """Parallel sizes, which determine the process groups."""
        return Degrees(*self[:6])

    @property
    def world(self) -> int:
        """Number of GPUs."""
        return self.tp * self.cp * self.pp * self.dp

    def at_level(self, level: int) -> Point:
        """Return the point that differs only in its recompute level."""
        return Point(*self[:8], level)


BuildLayout = Callable[[Point], Layout]
"""Builds the layout of a point, for formulas and rules that read a whole layout."""
