"""Load of every link for an order of hosts, updated after each swap of two hosts.

A full evaluation (``PlacementProblem.cost``) counts all messages again. A swap only changes the
counts of the messages of two node ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from operator import mul

from parc.compiler.ir.frozen import frozen
from parc.compiler.placement.order.placement_problem import (
    PlacementProblem,
    domain_of_each_node_rank,
)
from parc.compiler.topology.uplinks import TrafficFlow

Partners = tuple[tuple[int, ...], ...]
"""For every node rank, a tuple of node ranks or of process groups."""


@frozen
class NodeMessages:
    """Network messages of one phase (traffic of one parallel axis) by node rank."""

    unit_bytes: float
    """Bytes of one message."""
    exposure: float
    """Fraction of the communication time that does not overlap with computation."""
    parallel: int
    """Number of equal messages that one entry represents."""
    receivers: Partners
    """Receivers of every node rank, one entry per message."""
    senders: Partners
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
        count = sum(other not in own for node in own for other in self.receivers[node])
        for group in {group for node in own for group in self.groups_of[node]}:
            members = self.members[group].items()
            here = sum(count for node, count in members if node in own)
            count += here * (self.sizes[group] - here)
        return count * self.parallel


def messages_by_node(flow: TrafficFlow, nodes: int) -> NodeMessages:
    """Return the messages of ``flow`` by node rank, in a job of ``nodes`` node ranks."""
    receivers: list[list[int]] = [[] for _ in range(nodes)]
    senders: list[list[int]] = [[] for _ in range(nodes)]
    for sender, receiver in zip(flow.senders, flow.receivers, strict=True):
        receivers[sender].append(receiver)
        senders[receiver].append(sender)
    members = tuple(map(Counter, flow.member_nodes))
    groups_of: list[list[int]] = [[] for _ in range(nodes)]
    for index, group in enumerate(members):
        for node in group:
            groups_of[node].append(index)
    return NodeMessages(
        flow.unit_bytes,
        flow.exposure,
        flow.parallel,
        tuple(map(tuple, receivers)),
        tuple(map(tuple, senders)),
        members,
        tuple(map(len, flow.member_nodes)),
        tuple(map(tuple, groups_of)),
    )


Score = tuple[float, float, float]
"""Score of an order of hosts, which swaps minimize. The first number is compared first."""

RemotePartners = list[tuple[int, set[int]]]
"""Node ranks below a link, each with the node ranks that it communicates with over the link."""


class _FlowLoads:
    """Number of messages of one phase that leave each switch (or NVLink domain) of one level."""

    def __init__(
        self, flow: NodeMessages, zone: list[int], seconds: list[float], weighted_bytes: float
    ) -> None:
        """Count the messages that leave each zone; a zone is a switch or an NVLink domain.

        Args:
            flow: messages of one phase (traffic of one parallel axis).
            zone: number of the zone of every node rank.
            seconds: for each zone, the time of one message over the uplink of the zone.
            weighted_bytes: weighted bytes of one message.
        """
        self.flow, self.zone, self.seconds = flow, zone, seconds
        self.weighted_bytes = weighted_bytes
        self.sent = [0] * len(seconds)
        self.inside: list[Counter[int]] = []
        for here, others in zip(zone, flow.receivers, strict=True):
            for other in others:
                if zone[other] != here:
                    self.sent[here] += 1
        for group, size in zip(flow.members, flow.sizes, strict=True):
            members: Counter[int] = Counter()
            for node, count in group.items():
                members[zone[node]] += count
            self.inside.append(members)
            for where, count in members.items():
                self.sent[where] += count * (size - count)

    def busiest_seconds(self) -> float:
        """Return how many seconds the phase keeps the busiest uplink of the level busy.

        A phase is the traffic of one parallel axis.
        """
        return max(map(mul, self.sent, self.seconds), default=0.0)

    def busiest_zone(self) -> int:
        """Return the number of the zone (switch or NVLink domain) with the busiest uplink.

        On a tie, it is the first such zone.
        """
        spent = list(map(mul, self.sent, self.seconds))
        return spent.index(max(spent))

    def move_node_rank(self, node: int, to: int) -> None:
        """Move the node rank ``node`` below the switch ``to``, and update the message counts."""
        zone, sent, here = self.zone, self.sent, self.zone[node]
        if here == to:
            return
        for other in self.flow.receivers[node]:
            there = zone[other]
            # A comparison counts as 0 or 1: a message leaves its zone if the two
            # zones differ.
            sent[here] -= there != here
            sent[to] += there != to
        for other in self.flow.senders[node]:
            there = zone[other]
            sent[there] += (there == here) - (there == to)
        for group in self.flow.groups_of[node]:
            self._move_member(group, node, here, to)
        zone[node] = to

    def _move_member(self, group: int, node: int, here: int, to: int) -> None:
        """Update the message counts of an all-to-all group whose member ``node`` moves.

        The node rank ``node`` moves from the switch ``here`` to the switch ``to``. If k of the n
        members of a group are below a switch, k (n - k) messages leave this switch.
        """
        members, size = self.inside[group], self.flow.sizes[group]
        count = self.flow.members[group][node]
        for where, change in ((here, -count), (to, count)):
            old = members[where]
            self.sent[where] += (old + change) * (size - old - change) - old * (size - old)
            members[where] = old + change


class LinkLoads:
    """Loads of all links for one order of hosts.

    ``place`` lists the site (set of equivalent hosts) of every node rank, then of every idle host.
    If NVLink domains span hosts, the NICs of a domain count as one link.
    """

    def __init__(
        self, problem: PlacementProblem, flows: Sequence[NodeMessages], place: Iterable[int]
    ) -> None:
        """Count the load of all links; ``place`` maps each node rank to its site.

        A site is a set of equivalent hosts. Idle hosts are appended to ``self.place``, so that
        swaps can use them.
        """
        self.problem, self.place = problem, list(place)
        free = Counter(dict(enumerate(problem.sites.hosts_per_site)))
        free.subtract(self.place)
        self.place += [site for site, count in sorted(free.items()) for _ in range(count)]
        self._flows = [_extend_by_idle_hosts(flow, len(self.place)) for flow in flows]
        self._links = self._count_loads()

    def _count_loads(self) -> list[list[_FlowLoads]]:
        """Return the loads of the links: one list per phase, with one entry per level.

        A phase is the traffic of one parallel axis. The levels are the tiers of switches. If NVLink
        domains have several hosts, the domains are the last level.
        """
        sites = self.problem.sites
        rows: list[list[_FlowLoads]] = [[] for _ in self._flows]
        for flow, row, weight in zip(self._flows, rows, self.problem.weights, strict=True):
            message = flow.unit_bytes * flow.parallel
            for tier in sites.tiers:
                zone = [tier.zones[site] for site in self.place]
                seconds = [message / rate for rate in tier.bytes_per_s]
                row.append(_FlowLoads(flow, zone, seconds, message * weight))
            if sites.multi_host_domains:
                row.append(self._domain_loads(flow, message))
        return rows

    def _domain_loads(self, flow: NodeMessages, message_bytes: float) -> _FlowLoads:
        """Return the loads of the NVLink domains; all NICs of a domain count as one link."""
        # Domains are renumbered from 0, because single-host domains have negative
        # numbers.
        numbers: dict[int, int] = {}
        domains = domain_of_each_node_rank(self.problem.sites, self.place)
        zone = [numbers.setdefault(domain, len(numbers)) for domain in domains]
        nics, hosts = self.problem.sites.nic_bytes_per_s, Counter(zone)
        seconds = [message_bytes / (hosts[one] * nics) for one in numbers.values()]
        # The NICs of a domain are not an uplink, so their bytes are not counted.
        return _FlowLoads(flow, zone, seconds, 0.0)

    def score(self, floor_seconds: float = 0.0) -> Score:
        """Return the score of the current order of hosts; swaps minimize this score.

        If ``floor_seconds`` is set, the score is (exposed seconds, bytes over the busiest uplink,
        bytes over all uplinks), and exposed seconds below ``floor_seconds`` count as
        ``floor_seconds``. Otherwise the last two items are exchanged: almost every swap changes the
        bytes over all uplinks, so this sum guides the search while the busiest uplink stays the
        same. All bytes are weighted.
        """
        exposed = 0.0
        floors = self.problem.nic_seconds
        for row, flow, floor in zip(self._links, self._flows, floors, strict=True):
            least = 0.0 if self.problem.sites.multi_host_domains else floor
            spent = max((link.busiest_seconds() for link in row), default=0.0)
            exposed += flow.exposure * max(spent, least)
        carried = self._uplink_bytes()
        busiest, total = max(map(max, carried), default=0.0), sum(map(sum, carried))
        if floor_seconds:
            return max(exposed, floor_seconds), busiest, total
        return exposed, total, busiest

    def _uplink_bytes(self) -> list[list[float]]:
        """Return the weighted bytes per step over every uplink, by tier of switches."""
        tiers = []
        for links in list(zip(*self._links, strict=True))[: len(self.problem.sites.tiers)]:
            sums = [0.0] * len(links[0].sent)
            for link in links:
                size = link.weighted_bytes
                sums = [before + sent * size for before, sent in zip(sums, link.sent, strict=True)]
            tiers.append(sums)
        return tiers

    def swap_hosts(self, one: int, other: int) -> None:
        """Exchange the hosts of two node ranks, or of a node rank and an idle host."""
        here, there = self.place[one], self.place[other]
        if here == there:
            return
        for row in self._links:
            for link in row:
                from_, to = link.zone[one], link.zone[other]
                if from_ != to:
                    link.move_node_rank(one, to)
                    link.move_node_rank(other, from_)
        self.place[one], self.place[other] = there, here

    def partners_over_slowest_links(self) -> RemotePartners:
        """Return the node ranks that communicate over the two slowest links, with their partners.

        The slowest links are those that a single phase (traffic of one parallel axis) keeps busy
        for the most exposed seconds.
        """
        rows = [
            (flow.exposure * link.busiest_seconds(), index, link)
            for index, (row, flow) in enumerate(zip(self._links, self._flows, strict=True))
            for link in row
        ]
        found: RemotePartners = []
        for spent, _, link in sorted(rows, key=lambda row: (-row[0], row[1]))[:2]:
            if spent:
                found += _remote_partners(link, link.busiest_zone())
        return found

    def partners_over_busiest_uplink(self) -> RemotePartners:
        """Return the node ranks that communicate over the busiest uplink, with their partners.

        The busiest uplink carries the most weighted bytes. Node ranks are listed phase by phase (a
        phase is the traffic of one parallel axis). The phase with the most weighted bytes comes
        first.
        """
        carried = self._uplink_bytes()
        busiest = max(map(max, carried), default=0.0)
        found: RemotePartners = []
        if busiest:
            tier = next(index for index, sums in enumerate(carried) if max(sums) == busiest)
            zone = carried[tier].index(busiest)
            links = [row[tier] for row in self._links if row[tier].sent[zone]]
            for link in sorted(links, key=lambda link: -link.sent[zone] * link.weighted_bytes):
                found += _remote_partners(link, zone)
        return found


def _remote_partners(link: _FlowLoads, inside: int) -> RemotePartners:
    """Return (node rank, its partners outside) for the node ranks below the switch ``inside``.

    A partner is a node rank that exchanges messages with the first one. Node ranks without a
    partner outside of the switch are left out.
    """
    found = []
    for node, zone in enumerate(link.zone):
        if zone != inside:
            continue
        others = {*link.flow.receivers[node], *link.flow.senders[node]}
        for group in link.flow.groups_of[node]:
            others |= link.flow.members[group].keys()
        away = {other for other in others if link.zone[other] != inside}
        if away:
            found.append((node, away))
    return found


def _extend_by_idle_hosts(flow: NodeMessages, places: int) -> NodeMessages:
    """Return ``flow`` with empty entries for idle hosts, such that it has ``places`` entries."""
    none = ((),) * (places - len(flow.receivers))
    return replace(
        flow,
        receivers=flow.receivers + none,
        senders=flow.senders + none,
        groups_of=flow.groups_of + none,
    )
