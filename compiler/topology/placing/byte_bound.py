"""Bytes over the uplinks of switches that no order of hosts can beat, whatever it exposes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from parc.compiler.topology.placing.bound import MOST_STEPS, Bound
from parc.compiler.topology.placing.price import rounded
from parc.compiler.topology.placing.switch_level import SwitchLevel


@dataclass(frozen=True)
class ByteBound:
    """The same cuts as in ``Bound``, with every message counted by its bytes."""

    bound: Bound

    @cached_property
    def busiest_bytes(self) -> float:
        """Bytes a step over the busiest uplink, at least."""
        found = 0.0
        for level in self._tiers:
            found = max(found, self._groups_cut(level) / len(level.switches))
            if self._counted(level):
                found = max(found, level.least(self._sent, found))
        return rounded(found)

    @cached_property
    def total_bytes(self) -> float:
        """Bytes a step over all uplinks, at least."""
        found = 0.0
        for level in self._tiers:
            alone = level.sum(self._sent) if self._counted(level) else 0.0
            found += max(alone, self._groups_cut(level))
        return rounded(found)

    @property
    def _tiers(self) -> tuple[SwitchLevel, ...]:
        """Levels of switches; NVLink domains have no uplink of their own."""
        return self.bound.levels[self.bound.question.sites.wide :]

    def _counted(self, level: SwitchLevel) -> bool:
        return level.steps * len(self.bound.slices) <= MOST_STEPS

    def _groups_cut(self, level: SwitchLevel) -> float:
        """Bytes of groups that cannot be whole: each sends out of two switches."""
        return sum(
            2 * level.groups_cut(kind.size) * kind.least * unit
            for kind, unit in zip(self.bound.kinds, self._units, strict=True)
            if kind.size
        )

    @cached_property
    def _units(self) -> tuple[float, ...]:
        return tuple(one.unit_bytes for one in self.bound.question.flows)

    def _sent(self, held: int, _: float) -> float:
        """Bytes out of a switch that holds ``held`` node ranks, at least."""
        if held not in self._memory:
            self._memory[held] = self._cut(held)
        return self._memory[held]

    @cached_property
    def _memory(self) -> dict[int, float]:
        return {}

    def _cut(self, held: int) -> float:
        if held in (0, self.bound.question.nodes):
            return 0.0
        rest = [
            kind.remainder(held) * unit if kind.size else 0.0
            for kind, unit in zip(self.bound.kinds, self._units, strict=True)
        ]
        found = sum(rest)
        for one in self.bound.slices:
            others = sum(sent for flow, sent in enumerate(rest) if flow not in one.own)
            found = max(found, others + one.least(held, self._units, (0.0,) * len(rest)))
        return found
