"""Lower bounds on the bytes over the uplinks of switches, for orders of any exposed time.

The cuts are those of ``bound``, with every message counted by its bytes. Every switch is bounded
independently of the others, so the bounds are usually met on regular trees and seldom on irregular
ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from parc.compiler.placement.order.bound import MOST_STEPS, TimeBound
from parc.compiler.placement.order.placement_problem import rounded
from parc.compiler.placement.order.switch_level import SwitchLevel


@dataclass(frozen=True)
class ByteBound:
    """Lower bounds on the bytes per step of one placement problem."""

    time_bound: TimeBound

    @cached_property
    def busiest_bytes(self) -> float:
        """Least bytes per step over the busiest uplink."""
        found = 0.0
        for level in self._tiers:
            # The busiest uplink carries at least the mean of its level.
            found = max(found, self._total(level) / len(level.switches))
            if self._is_affordable(level):
                # ``least_seconds`` minimizes any cost per switch: here bytes in place of seconds.
                found = max(found, level.least_seconds(self._per_part.bytes_out, found))
        return rounded(found)

    @cached_property
    def total_bytes(self) -> float:
        """Least bytes per step over all uplinks."""
        return rounded(sum(map(self._total, self._tiers)))

    @property
    def _tiers(self) -> tuple[SwitchLevel, ...]:
        """Levels of switches, without the NVLink domains, which have no uplink."""
        return self.time_bound.levels[self.time_bound.problem.sites.multi_host_domains :]

    def _is_affordable(self, level: SwitchLevel) -> bool:
        return level.steps * len(self.time_bound.grid_views) <= MOST_STEPS

    def _total(self, level: SwitchLevel) -> float:
        """Return the least bytes over all uplinks of a level."""
        found = self._cut_group_bytes(level)
        if self._is_affordable(level):
            found = max(found, level.sum_of_minima(self._per_part.bytes_out))
            # A pipeline split into k parts sends 2 (k - 1) messages, more than one per part if
            # k > 2. Counting two per part and subtracting two per pipeline gives exactly that.
            twice = level.sum_of_minima(self._two_per_line_part.bytes_out)
            found = max(found, twice - self._line_bytes)
        return found

    def _cut_group_bytes(self, level: SwitchLevel) -> float:
        """Return the bytes of groups that fit below no single switch; each leaves two switches."""
        return sum(
            2 * level.groups_cut(model.size) * model.least_messages * unit
            for model, unit in zip(self.time_bound.problem.cut_models, self._units, strict=True)
            if model.size
        )

    @property
    def _units(self) -> tuple[float, ...]:
        """Bytes of one message of each flow."""
        return tuple(one.unit_bytes for one in self.time_bound.problem.flows)

    @cached_property
    def _line_bytes(self) -> float:
        """Bytes of two messages per pipeline."""
        problem = self.time_bound.problem
        return sum(
            2 * problem.nodes // model.size * model.least_messages * unit
            for model, unit in zip(problem.cut_models, self._units, strict=True)
            if model.size and model.line
        )

    @cached_property
    def _per_part(self) -> _SwitchBytes:
        return _SwitchBytes(self.time_bound, self._units)

    @cached_property
    def _two_per_line_part(self) -> _SwitchBytes:
        pairs = zip(self.time_bound.problem.cut_models, self._units, strict=True)
        units = tuple(unit * (1 + model.line) for model, unit in pairs)
        return _SwitchBytes(self.time_bound, units)


@dataclass(frozen=True)
class _SwitchBytes:
    """Least bytes that leave a switch, by the number of node ranks below it."""

    time_bound: TimeBound
    units: tuple[float, ...]
    """Bytes of one message, by flow."""

    @cached_property
    def _cache(self) -> dict[int, float]:
        return {}

    def bytes_out(self, contained: int, _: float) -> float:
        """Return the least bytes out of a switch with ``contained`` node ranks, at any rate."""
        if contained not in self._cache:
            self._cache[contained] = self._least(contained)
        return self._cache[contained]

    def _least(self, contained: int) -> float:
        problem = self.time_bound.problem
        if contained in (0, problem.nodes):
            return 0.0
        single = [
            model.least_leaving(contained) * unit if model.size else 0.0
            for model, unit in zip(problem.cut_models, self.units, strict=True)
        ]
        found = sum(single)
        for view in self.time_bound.grid_views:
            others = sum(sent for flow, sent in enumerate(single) if flow not in view.flows)
            found = max(found, others + view.least(contained, self.units, (0.0,) * len(single)))
        return found
