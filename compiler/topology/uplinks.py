"""Bytes that leave a zone (a rack, an NVLink domain), counted from the groups that cross it.

Rings: each member sends to the next in rank order, so a zone sends once for every ring edge that
leaves it (Patarasuk and Yuan 2009). All-to-all: members inside send to all members outside.
Pipelines: activations go to the next stage, gradients come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from operator import ne
from typing import Literal

from parc.compiler.topology.node_groups import NodeGroups

Pattern = Literal["ring", "line", "all-to-all"]


@dataclass(frozen=True)
class Flow:
    """What one family of groups sends in a step, as messages between node ranks."""

    unit_bytes: float
    """Bytes of one message."""
    exposure: float
    """Share of the time that is not hidden behind compute, 0 to 1."""
    parallel: int
    """Messages that every entry stands for."""
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    """Ring and line: node ranks of both ends of every message; none inside a host."""
    meetings: tuple[tuple[int, ...], ...]
    """All-to-all: node rank of every member of every group."""

    @cached_property
    def alone(self) -> Counter[int]:
        """Messages of every node rank that sends, where each has a host and a zone of its own."""
        egress = Counter(self.senders)
        for visit in self.meetings:
            for node, members in Counter(visit).items():
                egress[node] += members * (len(visit) - members)
        return Counter({node: count * self.parallel for node, count in egress.items() if count})


def flow(groups: NodeGroups, pattern: Pattern, rank_bytes: float, exposure: float) -> Flow:
    """Messages of ``groups``; ``rank_bytes`` is what one rank sends in a step."""
    if pattern == "all-to-all":
        unit = rank_bytes / max(1, groups.size - 1)
        return Flow(unit, exposure, groups.parallel, (), (), groups.visits)
    senders: list[int] = []
    receivers: list[int] = []
    for visit in groups.visits:
        if pattern == "ring":
            senders += visit
            receivers += (*visit[1:], visit[0])
        else:
            senders += visit[:-1] + visit[1:]
            receivers += visit[1:] + visit[:-1]
    apart = list(map(ne, senders, receivers))
    # A rank in the middle of a pipeline sends half forward and half back.
    unit = rank_bytes / 2 if pattern == "line" else rank_bytes
    out, into = (tuple(compress(nodes, apart)) for nodes in (senders, receivers))
    return Flow(unit, exposure, groups.parallel, out, into, ())


def zone_egress(flow: Flow, zone: Sequence[int]) -> Counter[int]:
    """Messages that leave each zone; ``zone`` is by node rank. Multiply by ``flow.unit_bytes``."""
    egress = Counter(map(zone.__getitem__, _leaving(flow, zone)))
    for visit in flow.meetings:
        inside = Counter(map(zone.__getitem__, visit))
        if len(inside) > 1:
            for name, members in inside.items():
                egress[name] += members * (len(visit) - members)
    return Counter({name: count * flow.parallel for name, count in egress.items()})


def host_egress(flow: Flow, zone: Sequence[int]) -> Counter[int]:
    """Messages that leave the zone of their sender, counted for each sending node rank."""
    if len(set(zone)) == len(zone):
        return flow.alone
    egress = Counter(_leaving(flow, zone))
    for visit in flow.meetings:
        inside = Counter(map(zone.__getitem__, visit))
        if len(inside) > 1:
            for node, members in Counter(visit).items():
                egress[node] += members * (len(visit) - inside[zone[node]])
    return Counter({node: count * flow.parallel for node, count in egress.items()})


def _leaving(flow: Flow, zone: Sequence[int]) -> Iterator[int]:
    """Senders of the messages that leave their zone."""
    ends = (map(zone.__getitem__, nodes) for nodes in (flow.senders, flow.receivers))
    return compress(flow.senders, map(ne, *ends))
