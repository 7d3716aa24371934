"""What no order of hosts can beat, counted from how many node ranks a switch must hold.

A switch that holds m node ranks cuts groups of every family, whatever they are: ``cuts`` says
how few. A bound for the whole job follows: the least exposed time for which all switches of a
level together have room for all node ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, sqrt

from parc.compiler.topology.placing.cuts import Kind, Slices, slices_of
from parc.compiler.topology.placing.price import Question, rounded
from parc.compiler.topology.uplinks import Flow

MOST_SLACK = 64
"""Idle hosts for which a bound is sought; beyond, the floors alone hold."""

MOST_STEPS = 600_000
"""Cuts of grids that are looked at for one level; a level that asks for more is left out."""


@dataclass(frozen=True)
class Bound:
    """The bound of one question."""

    question: Question
    kinds: tuple[Kind, ...]
    digits: tuple[int, ...]

    @cached_property
    def exposed_seconds(self) -> float:
        """No order of hosts exposes less."""
        found = sum(self._exposed_floors)
        for level in self._levels:
            if level.steps * len(self._slices) <= MOST_STEPS:
                found = max(found, level.least(self._held, found))
        return rounded(found)

    @cached_property
    def floors(self) -> tuple[float, ...]:
        """Seconds that each flow takes at least, by itself."""
        sites = self.question.sites
        floors = [0.0 if sites.wide else spent for spent in self.question.nic_seconds]
        for level in self._levels:
            for index, (kind, flow) in enumerate(zip(self.kinds, self.question.flows, strict=True)):
                if kind.size:
                    alone = _Alone(kind, flow, level.host_bytes_per_s)
                    floors[index] = max(floors[index], level.least(alone, floors[index]))
                    floors[index] = max(floors[index], level.shared(alone))
        return tuple(floors)

    @cached_property
    def _exposed_floors(self) -> tuple[float, ...]:
        flows = self.question.flows
        return tuple(one.exposure * floor for one, floor in zip(flows, self.floors, strict=True))

    @cached_property
    def _slices(self) -> tuple[Slices, ...]:
        return slices_of(self.kinds, self.digits)

    @cached_property
    def _levels(self) -> tuple[_Level, ...]:
        """Switches of every level, NVLink domains first."""
        sites, nodes = self.question.sites, self.question.nodes
        levels = []
        if sites.wide:
            room: Counter[int] = Counter()
            for site, domain in enumerate(sites.domains):
                room[domain if domain >= 0 else ~site] += sites.sizes[site]
            pairs = [(count, count * sites.nic_bytes_per_s) for count in room.values()]
            levels.append(_Level(nodes, tuple(pairs), sites.nic_bytes_per_s))
        for tier in sites.tiers:
            beneath = [0] * len(tier.bytes_per_s)
            for zone, size in zip(tier.zones, sites.sizes, strict=True):
                beneath[zone] += size
            levels.append(_Level(nodes, tuple(zip(beneath, tier.bytes_per_s, strict=True))))
        return tuple(levels)

    def _held(self, held: int, rate: float) -> float:
        """Least exposed seconds of a job with a switch that holds ``held`` node ranks."""
        floors = self._exposed_floors
        base = sum(floors)
        if held in (0, self.question.nodes):
            return base
        weights = tuple(one.exposure * one.unit_bytes / rate for one in self.question.flows)
        return max((base, *(one.least(held, weights, floors) for one in self._slices)))


@dataclass(frozen=True, slots=True)
class _Alone:
    """Seconds that one flow by itself takes out of a switch."""

    kind: Kind
    flow: Flow
    host_bytes_per_s: float
    """NICs of a host where hosts share no uplink; 0.0 where they do."""

    def __call__(self, held: int, rate: float) -> float:
        """At least, where the switch holds ``held`` node ranks.

        Messages are not split: without an uplink some host sends its whole share by itself.
        """
        if not held:
            return 0.0
        messages, each = self.kind.remainder(held), self.flow.parallel
        if self.host_bytes_per_s:
            share = ceil(messages / each / held) * each
            return share * self.flow.unit_bytes / self.host_bytes_per_s
        return messages * self.flow.unit_bytes / rate


@dataclass(frozen=True)
class _Level:
    """Switches of one level."""

    nodes: int
    switches: tuple[tuple[int, float], ...]
    """(hosts, bytes a second out) of every switch."""
    host_bytes_per_s: float = 0.0
    """NICs of a host, for NVLink domains: what leaves one does so host by host."""

    @property
    def steps(self) -> float:
        """About how many cuts of grids ``Bound`` looks at for this level."""
        slack = sum(room for room, _ in self.switches) - self.nodes
        return sum((min(slack, room) + 1) * room * sqrt(room) for (room, _), _ in self._alike)

    @cached_property
    def _alike(self) -> list[tuple[tuple[int, float], int]]:
        return sorted(Counter(self.switches).items())

    def least(self, spent: Callable[[int, float], float], floor: float) -> float:
        """The least time, ``floor`` or more, for which the switches have room for the job.

        ``spent`` is what a switch costs by (node ranks held, rate).
        """
        slack = sum(room for room, _ in self.switches) - self.nodes
        if slack > MOST_SLACK:
            return floor
        options = [
            (count, [(spent(held, rate), held) for held in self._fills(room, slack)])
            for (room, rate), count in self._alike
        ]
        times = {time for _, costs in options for time, _ in costs if time > floor}
        for time in [floor, *sorted(times)]:
            if self._room(options, time) >= self.nodes:
                return time
        return floor

    def _fills(self, room: int, slack: int) -> range:
        return range(max(room - slack, 0), min(room, self.nodes) + 1)

    @staticmethod
    def _room(options: list[tuple[int, list[tuple[float, int]]]], time: float) -> float:
        """Node ranks that the switches hold where none takes longer than ``time``."""
        return sum(
            count * max((held for spent, held in costs if spent <= time), default=-inf)
            for count, costs in options
        )

    def shared(self, alone: _Alone) -> float:
        """Groups that cannot be whole send out of two switches; the fullest has its share."""
        kind = alone.kind
        whole = sum(room // kind.size for room, _ in self.switches)
        cut = max(self.nodes // kind.size - whole, 0)
        return 2 * cut * kind.least * alone.flow.unit_bytes / sum(rate for _, rate in self.switches)
