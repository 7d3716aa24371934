"""Bytes over the uplinks of switches that no order of hosts can beat, whatever it exposes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from parc.compiler.placement.order.bound import MOST_STEPS, Bound
from parc.compiler.placement.order.price import rounded
from parc.compiler.placement.order.switch_level import SwitchLevel


@dataclass(frozen=True)
class ByteBound:
    """The same cuts as in ``Bound``, with every message counted by its bytes."""

    bound: Bound

    @cached_property
    def busiest_bytes(self) -> float:
        """Bytes a step over the busiest uplink, at least."""
        found = 0.0
        for level in self._tiers:
            found = max(found, self._total(level) / len(level.switches))
            if self._counted(level):
                found = max(found, level.least(self._once.sent, found))
        return rounded(found)

    @cached_property
    def total_bytes(self) -> float:
        """Bytes a step over all uplinks, at least."""
        return rounded(sum(map(self._total, self._tiers)))

    @property
    def _tiers(self) -> tuple[SwitchLevel, ...]:
        """Levels of switches; NVLink domains have no uplink of their own."""
        return self.bound.levels[self.bound.question.sites.wide :]

    def _counted(self, level: SwitchLevel) -> bool:
        return level.steps * len(self.bound.slices) <= MOST_STEPS

    def _total(self, level: SwitchLevel) -> float:
        """Bytes over all uplinks of a level, at least."""
        found = self._groups_cut(level)
        if self._counted(level):
            found = max(found, level.sum(self._once.sent))
            # A line in k parts sends 2 (k - 1) messages: two for each part, less two a line.
            found = max(found, level.sum(self._twice.sent) - self._lines)
        return found

    def _groups_cut(self, level: SwitchLevel) -> float:
        """Bytes of groups that cannot be whole: each sends out of two switches."""
        return sum(
            2 * level.groups_cut(kind.size) * kind.least * unit
            for kind, unit in zip(self.bound.kinds, self._units, strict=True)
            if kind.size
        )

    @property
    def _units(self) -> tuple[float, ...]:
        return tuple(one.unit_bytes for one in self.bound.question.flows)

    @cached_property
    def _lines(self) -> float:
        """Bytes of two messages of every line."""
        nodes = self.bound.question.nodes
        return sum(
            2 * nodes // kind.size * kind.least * unit
            for kind, unit in zip(self.bound.kinds, self._units, strict=True)
            if kind.size and kind.line
        )

    @cached_property
    def _once(self) -> _Cuts:
        return _Cuts(self.bound, self._units)

    @cached_property
    def _twice(self) -> _Cuts:
        pairs = zip(self.bound.kinds, self._units, strict=True)
        return _Cuts(self.bound, tuple(unit * (1 + kind.line) for kind, unit in pairs))


@dataclass(frozen=True)
class _Cuts:
    """What switches send by the node ranks that they hold."""

    bound: Bound
    units: tuple[float, ...]
    """Bytes of one message, by flow."""

    @cached_property
    def _known(self) -> dict[int, float]:
        return {}

    def sent(self, held: int, _: float) -> float:
        """Bytes out of a switch that holds ``held`` node ranks, at least; whatever its rate."""
        if held not in self._known:
            self._known[held] = self._least(held)
        return self._known[held]

    def _least(self, held: int) -> float:
        if held in (0, self.bound.question.nodes):
            return 0.0
        rest = [
            kind.remainder(held) * unit if kind.size else 0.0
            for kind, unit in zip(self.bound.kinds, self.units, strict=True)
        ]
        found = sum(rest)
        for one in self.bound.slices:
            others = sum(sent for flow, sent in enumerate(rest) if flow not in one.own)
            found = max(found, others + one.least(held, self.units, (0.0,) * len(rest)))
        return found
