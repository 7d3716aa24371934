"""Messages of process groups that leave a zone. A zone is a switch or an NVLink domain.

In a ring each member sends to the next one in rank order, so a zone sends one message for every
ring edge that leaves the zone (Patarasuk and Yuan 2009). In an all-to-all each member inside sends
to each member outside. In a pipeline activations go to the next stage and gradients come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import compress
from operator import ne
from typing import Literal

from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.node_groups import NodeGroups

Pattern = Literal["ring", "line", "all-to-all"]


@frozen(slots=False)
class TrafficFlow:
    """Messages per step between the node ranks of the process groups over some mesh axes."""

    unit_bytes: float
    """Bytes of one message."""
    exposure: float
    """Fraction (0 to 1) of the communication time that does not overlap with computation."""
    parallel: int
    """Number of equal messages that one entry of the lists below represents."""
    senders: tuple[int, ...]
    receivers: tuple[int, ...]
    """Ring and line: message ``i`` goes from the node rank ``senders[i]`` to ``receivers[i]``.
    Messages inside a host are omitted."""
    member_nodes: tuple[tuple[int, ...], ...]
    """All-to-all: node rank of every member of every group."""

    @cached_property
    def node_egress(self) -> Counter[int]:
        """Return the number of messages that each node rank sends to other node ranks."""
        egress = Counter(self.senders)
        for visit in self.member_nodes:
            for node, members in Counter(visit).items():
                egress[node] += members * (len(visit) - members)
        return Counter({node: count * self.parallel for node, count in egress.items() if count})


def build_traffic_flow(
    groups: NodeGroups, pattern: Pattern, rank_bytes: float, exposure: float
) -> TrafficFlow:
    """Return the messages that node ranks send to each other in one step, for one parallel axis.

    Args:
        groups: process groups of the axis.
        pattern: ring, pipeline (line) or all-to-all.
        rank_bytes: number of bytes that each rank sends per step.
        exposure: fraction of the communication time that does not overlap with computation.
    """
    unit = rank_bytes * message_share(groups.size, pattern)
    if pattern == "all-to-all":
        return TrafficFlow(unit, exposure, groups.parallel, (), (), groups.visits)
    senders: list[int] = []
    receivers: list[int] = []
    for visit in groups.visits:
        if pattern == "ring":
            senders += visit
            receivers += (*visit[1:], visit[0])
        else:
            senders += visit[:-1] + visit[1:]
            receivers += visit[1:] + visit[:-1]
    crosses_hosts = list(map(ne, senders, receivers))
    out, into = (tuple(compress(nodes, crosses_hosts)) for nodes in (senders, receivers))
    return TrafficFlow(unit, exposure, groups.parallel, out, into, ())


def message_share(size: int, pattern: Pattern) -> float:
    """Return the bytes of one message as a fraction of those that a rank sends.

    ``size`` is the number of ranks of a process group, ``pattern`` that of its messages.
    """
    if pattern == "all-to-all":
        # A rank sends an equal part to each of the other members.
        return 1 / max(1, size - 1)
    # A rank in the middle of a pipeline sends half of its bytes forward and half back.
    return 0.5 if pattern == "line" else 1.0


def messages_leaving_zones(flow: TrafficFlow, zone: Sequence[int]) -> Counter[int]:
    """Return the number of messages that leave each zone (a switch or an NVLink domain).

    ``zone[i]`` is the number of the zone that contains node rank ``i``. Each message has
    ``flow.unit_bytes`` bytes.
    """
    egress = Counter(map(zone.__getitem__, _nodes_sending_across_zones(flow, zone)))
    for visit in flow.member_nodes:
        inside = Counter(map(zone.__getitem__, visit))
        if len(inside) > 1:
            for name, members in inside.items():
                egress[name] += members * (len(visit) - members)
    return Counter({name: count * flow.parallel for name, count in egress.items()})


def zone_egress_by_node(flow: TrafficFlow, zone: Sequence[int]) -> Counter[int]:
    """Return the number of messages that each node rank sends out of its zone.

    ``zone[i]`` is the number of the zone (a switch or an NVLink domain) of node rank ``i``.
    """
    # No two node ranks share a zone, so the cached counts apply to any order of hosts.
    if len(set(zone)) == len(zone):
        return flow.node_egress
    egress = Counter(_nodes_sending_across_zones(flow, zone))
    for visit in flow.member_nodes:
        inside = Counter(map(zone.__getitem__, visit))
        if len(inside) > 1:
            for node, members in Counter(visit).items():
                egress[node] += members * (len(visit) - inside[zone[node]])
    return Counter({node: count * flow.parallel for node, count in egress.items()})


def _nodes_sending_across_zones(flow: TrafficFlow, zone: Sequence[int]) -> Iterator[int]:
    """Yield the sender of every ring or pipeline message between two zones.

    The sender is a node rank. A zone is a switch or an NVLink domain.
    """
    ends = (map(zone.__getitem__, nodes) for nodes in (flow.senders, flow.receivers))
    return compress(flow.senders, map(ne, *ends))
