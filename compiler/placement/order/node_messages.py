"""Network messages by node rank, to count how many leave a set of node ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from parc.compiler.topology.uplinks import TrafficFlow

Partners = tuple[tuple[int, ...], ...]
"""For every node rank, a tuple of node ranks or of process groups."""


@dataclass(frozen=True, slots=True)
class NodeMessages:
    """Network messages of one phase (traffic of one parallel axis) by node rank."""

    unit_bytes: float
    """Bytes of one message."""
    exposure: float
    """Fraction of the communication time that does not overlap with computation."""
    parallel: int
    """Number of equal messages that one entry represents."""
    sends: Partners
    """Receivers of every node rank, one entry per message."""
    receives: Partners
    """Senders of the messages to every node rank, one entry per message."""
    members: tuple[Counter[int], ...]
    """For every all-to-all group, the number of members on each node rank."""
    sizes: tuple[int, ...]
    """Number of members of every all-to-all group."""
    groups_of: Partners
    """Indexes of the all-to-all groups that have members on each node rank."""

    def count_leaving_messages(self, inside: Collection[int]) -> int:
        """Return the number of messages from node ranks in ``inside`` to all other node ranks."""
        # A set, because ``in`` runs once per message.
        own = inside if isinstance(inside, (set, frozenset)) else set(inside)
        count = sum(other not in own for node in own for other in self.sends[node])
        for group in {group for node in own for group in self.groups_of[node]}:
            members = self.members[group].items()
            here = sum(count for node, count in members if node in own)
            count += here * (self.sizes[group] - here)
        return count * self.parallel


def messages_by_node(flow: TrafficFlow, nodes: int) -> NodeMessages:
    """Return the messages of ``flow`` by node rank, in a job of ``nodes`` node ranks."""
    sends: list[list[int]] = [[] for _ in range(nodes)]
    receives: list[list[int]] = [[] for _ in range(nodes)]
    for sender, receiver in zip(flow.senders, flow.receivers, strict=True):
        sends[sender].append(receiver)
        receives[receiver].append(sender)
    members = tuple(map(Counter, flow.member_nodes))
    groups_of: list[list[int]] = [[] for _ in range(nodes)]
    for index, group in enumerate(members):
        for node in group:
            groups_of[node].append(index)
    return NodeMessages(
        flow.unit_bytes,
        flow.exposure,
        flow.parallel,
        tuple(map(tuple, sends)),
        tuple(map(tuple, receives)),
        members,
        tuple(map(len, flow.member_nodes)),
        tuple(map(tuple, groups_of)),
    )
