"""What no order of hosts can beat, counted from how many node ranks a switch must hold.

A switch that holds m node ranks cuts groups of every family, whatever they are. For two families
whose groups cross each other like rows and columns, few cut rows mean many cut columns; the
pairs that a set of m can reach are known in closed form (``grid_cuts``). A bound for the
whole job follows: the least exposed time for which all switches together have room for all
node ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import inf, isqrt

from parc.compiler.topology.node_groups import NodeGroups
from parc.compiler.topology.placing.price import Question, rounded
from parc.compiler.topology.uplinks import Pattern

MOST_SLACK = 256
"""Idle hosts for which a bound is sought; beyond, the floors alone hold."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Groups of one flow as the bound sees them: equal sets of node ranks that tile the job."""

    digits: tuple[int, ...]
    """Digits of the node rank that vary inside a group; empty where groups are not boxes."""
    size: int
    """Node ranks of a group."""
    least: float
    """Messages that leave a set which holds a part of a group, at least."""
    twice: bool
    """Whether a line: of the messages between k parts of it, 2 (k - 1) leave a part."""


@dataclass(frozen=True)
class Bound:
    """The bound of one question."""

    question: Question
    kinds: tuple[Kind, ...]
    digits: tuple[int, ...]

    @cached_property
    def exposed_seconds(self) -> float:
        """No order of hosts exposes less."""
        flows = self.question.flows
        found = sum(one.exposure * floor for one, floor in zip(flows, self.floors, strict=True))
        for zones, rate in self._levels():
            found = max(found, self._level(zones, rate, found))
        return rounded(found)

    @cached_property
    def floors(self) -> tuple[float, ...]:
        """Seconds that each flow takes at least, by itself."""
        sites = self.question.sites
        floors = [0.0 if sites.wide else spent for spent in self.question.nic_seconds]
        for zones, rate in self._levels():
            for index, kind in enumerate(self.kinds):
                floors[index] = max(floors[index], self._alone(index, kind, zones, rate))
        return tuple(floors)

    def _levels(self) -> Iterator[tuple[list[int], list[float]]]:
        """(hosts, bytes a second out) of every bin, level by level."""
        sites = self.question.sites
        if sites.wide:
            room: Counter[int] = Counter()
            for site, domain in enumerate(sites.domains):
                room[domain if domain >= 0 else ~site] += sites.sizes[site]
            rates = [count * sites.nic_bytes_per_s for count in room.values()]
            yield list(room.values()), rates
        for tier in sites.tiers:
            beneath = [0] * len(tier.bytes_per_s)
            for zone, size in zip(tier.zones, sites.sizes, strict=True):
                beneath[zone] += size
            yield beneath, list(tier.bytes_per_s)

    def _alone(self, index: int, kind: Kind, zones: list[int], rate: list[float]) -> float:
        """Groups that cannot be whole send from two switches; the fullest has its share."""
        if not kind.size:
            return 0.0
        whole = sum(room // kind.size for room in zones)
        cut = max(self.question.nodes // kind.size - whole, 0)
        unit = self.question.flows[index].unit_bytes
        return 2 * cut * kind.least * unit / sum(rate)

    def _level(self, zones: list[int], rates: list[float], least: float) -> float:
        """The least time for which the switches of one level hold all node ranks."""
        slack = sum(zones) - self.question.nodes
        if slack > MOST_SLACK:
            return least
        kinds = sorted(Counter(zip(zones, rates, strict=True)).items())
        costs = [self._fills(room, rate, slack) for (room, rate), _ in kinds]
        steps = sorted({spent for options in costs for _, spent in options if spent > least})
        for step in [least, *steps]:
            held = 0
            for ((_, _), count), options in zip(kinds, costs, strict=True):
                held += count * max((m for m, spent in options if spent <= step), default=-inf)
            if held >= self.question.nodes:
                return step
        return least

    def _fills(self, room: int, rate: float, slack: int) -> list[tuple[int, float]]:
        """(node ranks, least exposed seconds) of every way to fill one switch."""
        most, fewest = min(room, self.question.nodes), max(room - slack, 0)
        return [(held, self._held(held, rate)) for held in range(most, fewest - 1, -1)]

    def _held(self, held: int, rate: float) -> float:
        """Least exposed seconds of a switch that holds ``held`` node ranks."""
        if held in (0, self.question.nodes):
            return 0.0
        flows = self.question.flows
        price = [one.unit_bytes * kind.least / rate for one, kind in zip(flows, self.kinds, strict=True)]
        floors = [one.exposure * floor for one, floor in zip(flows, self.floors, strict=True)]
        base = sum(floors)
        best = base
        for index, kind in enumerate(self.kinds):
            if kind.size and held % kind.size:
                spent = flows[index].exposure * price[index]
                best = max(best, base - floors[index] + max(floors[index], spent))
        for a, b in combinations(range(len(flows)), 2):
            cuts = self._pair(a, b, held)
            if cuts:
                spent = min(
                    max(floors[a], flows[a].exposure * price[a] * rows)
                    + max(floors[b], flows[b].exposure * price[b] * columns)
                    for rows, columns in cuts
                )
                best = max(best, base - floors[a] - floors[b] + spent)
        return best

    def _pair(self, a: int, b: int, held: int) -> list[tuple[int, int]]:
        """Cut groups of two flows that cross, where they span the whole job."""
        one, other = self.kinds[a], self.kinds[b]
        if not one.size or not other.size or set(one.digits) & set(other.digits):
            return []
        if one.size * other.size != self.question.nodes or one.size == 1 or other.size == 1:
            return []
        return grid_cuts(held, one.size, other.size)


def grid_cuts(held: int, length: int, other_length: int) -> list[tuple[int, int]]:
    """(rows cut, columns cut) that a set of ``held`` cells of a grid can have, the least ones.

    Rows have ``length`` cells and there are ``other_length`` of them; columns the other way
    round. A set with no full line cuts every line that it touches, and what it touches is a
    rectangle that holds it. A set with a full row touches every column. With a full row and a
    full column, the same holds for what is left out.
    """
    cells = length * other_length
    if held in (0, cells):
        return [(0, 0)]
    found = [
        (other_length, int(held % other_length > 0)),
        (int(held % length > 0), length),
    ]
    for part in (held, cells - held):
        for few in range(1, isqrt(part) + 2):
            many = -(-part // few)
            found += [(few, many)] if few <= other_length and many <= length else []
            found += [(many, few)] if many <= other_length and few <= length else []
    return found


def kind_of(
    groups: NodeGroups, pattern: Pattern, digits: tuple[int, ...], size: int, job: int
) -> Kind:
    """What the bound knows of ``groups`` in a job of ``job`` node ranks.

    They vary over ``digits``, ``size`` node ranks a group. Of a ring or a line that is cut, one
    message leaves a part; of n node ranks that all talk to all, the least leaves one of them.
    Groups that are no boxes of digits have no bound.
    """
    nodes = len(set(groups.visits[0]))
    if nodes != size or groups.size % nodes or job % nodes:
        return Kind((), 0, 0.0, pattern == "line")
    each = groups.size // nodes
    messages = each * each * (nodes - 1) if pattern == "all-to-all" else 1
    return Kind(digits, nodes, messages * groups.count * nodes / job, pattern == "line")
