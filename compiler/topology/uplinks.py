"""Bytes that leave a zone (a rack, an NVLink domain), counted from the groups that cross it.

Rings: each member sends to the next in rank order, so a zone sends once for every ring edge that
leaves it (Patarasuk and Yuan 2009). All-to-all: members inside send to all members outside.
Pipelines: activations go to the next stage, gradients come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from parc.compiler.topology.node_groups import NodeGroups

Pattern = Literal["ring", "line", "all-to-all"]


@dataclass(frozen=True, slots=True)
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


def flow(groups: NodeGroups, pattern: Pattern, rank_bytes: float, exposure: float) -> Flow:
    """Messages of ``groups``; ``rank_bytes`` is what one rank sends in a step."""
    if pattern == "all-to-all":
        unit = rank_bytes / max(1, groups.size - 1)
        return Flow(unit, exposure, groups.parallel, (), (), groups.visits)
    edges: list[tuple[int, int]] = []
    for visit in groups.visits:
        edges.extend(pairwise(visit))
        if pattern == "ring":
            edges.append((visit[-1], visit[0]))
        else:
            edges.extend(zip(visit[1:], visit, strict=False))
    edges = [edge for edge in edges if edge[0] != edge[1]]
    # A rank in the middle of a pipeline sends half forward and half back.
    unit = rank_bytes / 2 if pattern == "line" else rank_bytes
    senders, receivers = tuple(a for a, _ in edges), tuple(b for _, b in edges)
    return Flow(unit, exposure, groups.parallel, senders, receivers, ())


def zone_egress(flow: Flow, zone: Sequence[int]) -> Counter[int]:
    """Messages that leave each zone; ``zone`` is by node rank. Multiply by ``flow.unit_bytes``."""
    crossing = zip(
        map(zone.__getitem__, flow.senders), map(zone.__getitem__, flow.receivers), strict=True
    )
    egress = Counter(sender for sender, receiver in crossing if sender != receiver)
    for visit in flow.meetings:
        inside = Counter(map(zone.__getitem__, visit))
        if len(inside) > 1:
            for name, members in inside.items():
                egress[name] += members * (len(visit) - members)
    return Counter({name: count * flow.parallel for name, count in egress.items()})


def host_egress(flow: Flow, zone: Sequence[int]) -> Counter[int]:
    """Messages that leave the zone of their sender, counted for each sending node rank."""
    ends = zip(flow.senders, flow.receivers, strict=True)
    egress = Counter(sender for sender, receiver in ends if zone[sender] != zone[receiver])
    for visit in flow.meetings:
        inside = Counter(map(zone.__getitem__, visit))
        if len(inside) > 1:
            for node in visit:
                egress[node] += len(visit) - inside[zone[node]]
    return Counter({node: count * flow.parallel for node, count in egress.items()})
