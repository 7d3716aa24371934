"""Who sends to whom, by node rank: what leaves a set of node ranks, counted from the set alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from parc.compiler.topology.uplinks import Flow

Partners = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """One flow by node rank."""

    unit_bytes: float
    exposure: float
    parallel: int
    sends: Partners
    """Receivers of every node rank, once a message."""
    gets: Partners
    """Senders to every node rank, once a message."""
    meetings: tuple[Counter[int], ...]
    """Members of every all-to-all group by node rank."""
    sizes: tuple[int, ...]
    """Members of every all-to-all group."""
    member_of: Partners
    """Groups of every node rank."""

    def leaving(self, inside: Collection[int]) -> int:
        """Messages from node ranks in ``inside`` to others."""
        own = inside if isinstance(inside, (set, frozenset)) else set(inside)
        count = sum(other not in own for node in own for other in self.sends[node])
        for group in {group for node in own for group in self.member_of[node]}:
            meeting = self.meetings[group].items()
            here = sum(members for node, members in meeting if node in own)
            count += here * (self.sizes[group] - here)
        return count * self.parallel


def messages(flow: Flow, nodes: int) -> Messages:
    """``flow`` by node rank."""
    sends: list[list[int]] = [[] for _ in range(nodes)]
    gets: list[list[int]] = [[] for _ in range(nodes)]
    for sender, receiver in zip(flow.senders, flow.receivers, strict=True):
        sends[sender].append(receiver)
        gets[receiver].append(sender)
    meetings = tuple(map(Counter, flow.meetings))
    member_of: list[list[int]] = [[] for _ in range(nodes)]
    for index, meeting in enumerate(meetings):
        for node in meeting:
            member_of[node].append(index)
    return Messages(
        flow.unit_bytes,
        flow.exposure,
        flow.parallel,
        tuple(map(tuple, sends)),
        tuple(map(tuple, gets)),
        meetings,
        tuple(map(len, flow.meetings)),
        tuple(map(tuple, member_of)),
    )
