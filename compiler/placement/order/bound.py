"""What no order of hosts can beat, counted from how many node ranks a switch must hold.

A switch that holds m node ranks cuts groups of every family, whatever they are: ``cuts`` says
how few. A bound for the whole job follows: the least exposed time for which all switches of a
level together have room for all node ranks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from parc.compiler.placement.order.cuts import Kind, Slices, slices_of
from parc.compiler.placement.order.price import Question, rounded
from parc.compiler.placement.order.switch_level import SwitchLevel
from parc.compiler.topology.uplinks import Flow

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
        for level in self.levels:
            if level.steps * len(self.slices) <= MOST_STEPS:
                found = max(found, level.least(self._held, found))
        return rounded(found)

    @cached_property
    def floors(self) -> tuple[float, ...]:
        """Seconds that each flow takes at least, by itself."""
        sites = self.question.sites
        floors = [0.0 if sites.wide else spent for spent in self.question.nic_seconds]
        for level in self.levels:
            for index, (kind, flow) in enumerate(zip(self.kinds, self.question.flows, strict=True)):
                if kind.size:
                    alone = _Alone(kind, flow, level.host_bytes_per_s)
                    floors[index] = max(floors[index], level.least(alone, floors[index]))
                    floors[index] = max(floors[index], alone.shared(level))
        return tuple(floors)

    @cached_property
    def _exposed_floors(self) -> tuple[float, ...]:
        flows = self.question.flows
        return tuple(one.exposure * floor for one, floor in zip(flows, self.floors, strict=True))

    @cached_property
    def slices(self) -> tuple[Slices, ...]:
        """The ways to read the flows as lines, slices, rows and columns."""
        return slices_of(self.kinds, self.digits)

    @cached_property
    def levels(self) -> tuple[SwitchLevel, ...]:
        """Switches of every level, NVLink domains first."""
        sites, nodes = self.question.sites, self.question.nodes
        levels = []
        if sites.wide:
            room: Counter[int] = Counter()
            for site, domain in enumerate(sites.domains):
                room[domain if domain >= 0 else ~site] += sites.sizes[site]
            pairs = [(count, count * sites.nic_bytes_per_s) for count in room.values()]
            levels.append(SwitchLevel(nodes, tuple(pairs), sites.nic_bytes_per_s))
        for tier in sites.tiers:
            beneath = [0] * len(tier.bytes_per_s)
            for zone, size in zip(tier.zones, sites.sizes, strict=True):
                beneath[zone] += size
            levels.append(SwitchLevel(nodes, tuple(zip(beneath, tier.bytes_per_s, strict=True))))
        return tuple(levels)

    def _held(self, held: int, rate: float) -> float:
        """Least exposed seconds of a job with a switch that holds ``held`` node ranks."""
        floors = self._exposed_floors
        base = sum(floors)
        if held in (0, self.question.nodes):
            return base
        weights = tuple(one.exposure * one.unit_bytes / rate for one in self.question.flows)
        return max((base, *(one.least(held, weights, floors) for one in self.slices)))


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

    def shared(self, level: SwitchLevel) -> float:
        """Groups that cannot be whole send out of two switches; the fullest has its share."""
        sent = 2 * level.groups_cut(self.kind.size) * self.kind.least * self.flow.unit_bytes
        return sent / level.bytes_per_s
