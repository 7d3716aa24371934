"""Load of every link under an order of hosts, updated after each swap of two hosts.

A full evaluation (``PlacementProblem.cost``) counts all messages again. A swap only changes the
counts of the messages of two node ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import mul

from parc.compiler.placement.order.node_messages import NodeMessages
from parc.compiler.placement.order.placement_problem import PlacementProblem, domains_of

Score = tuple[float, float, float]
"""Key of an order of hosts that swaps minimize; the first entry is compared first."""

RemotePartners = list[tuple[int, set[int]]]
"""Node ranks below a link, each with the node ranks with which it communicates over the link."""


class _FlowLoads:
    """Number of messages of one phase that leave each switch (or NVLink domain) of one level."""

    def __init__(
        self, flow: NodeMessages, zone: list[int], seconds: list[float], weighted_bytes: float
    ) -> None:
        """Count the messages that leave each zone: a switch or an NVLink domain.

        Args:
            flow: messages of one phase.
            zone: zone of every node rank.
            seconds: time of one message over the uplink of each zone.
            weighted_bytes: weighted bytes of one message.
        """
        self.flow, self.zone, self.seconds = flow, zone, seconds
        self.weighted_bytes = weighted_bytes
        self.sent = [0] * len(seconds)
        self.inside: list[Counter[int]] = []
        for here, others in zip(zone, flow.sends, strict=True):
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
        """Return the seconds that the phase takes over the busiest uplink of the level."""
        return max(map(mul, self.sent, self.seconds), default=0.0)

    def busiest_zone(self) -> int:
        """Return the number of the switch with the busiest uplink; the first one on a tie."""
        spent = list(map(mul, self.sent, self.seconds))
        return spent.index(max(spent))

    def move(self, node: int, to: int) -> None:
        """Move ``node`` below the switch ``to`` and update the message counts."""
        zone, sent, here = self.zone, self.sent, self.zone[node]
        if here == to:
            return
        for other in self.flow.sends[node]:
            there = zone[other]
            # A comparison counts as 0 or 1: a message leaves its zone if the two
            # zones differ.
            sent[here] -= there != here
            sent[to] += there != to
        for other in self.flow.receives[node]:
            there = zone[other]
            sent[there] += (there == here) - (there == to)
        for group in self.flow.groups_of[node]:
            self._move_member(group, node, here, to)
        zone[node] = to

    def _move_member(self, group: int, node: int, here: int, to: int) -> None:
        """Update the message counts of an all-to-all group whose member ``node`` moves.

        It moves from below the switch ``here`` to below the switch ``to``. If k of n members are
        below a switch, they send k (n - k) messages out of it.
        """
        members, size = self.inside[group], self.flow.sizes[group]
        count = self.flow.members[group][node]
        for where, change in ((here, -count), (to, count)):
            old = members[where]
            self.sent[where] += (old + change) * (size - old - change) - old * (size - old)
            members[where] = old + change


class LinkLoads:
    """Loads of all links under one order of hosts.

    ``place`` lists the site (set of equivalent hosts) of every node rank, then of every idle host.
    If NVLink domains span hosts, the NICs of a domain count as one link.
    """

    def __init__(
        self, problem: PlacementProblem, flows: Sequence[NodeMessages], place: Iterable[int]
    ) -> None:
        """Count the load of all links; ``place`` is the site of every node rank.

        Idle hosts are added to ``place``, so that swaps can use them.
        """
        self.problem, self.place = problem, list(place)
        free = Counter(dict(enumerate(problem.sites.sizes)))
        free.subtract(self.place)
        self.place += [site for site, count in sorted(free.items()) for _ in range(count)]
        self._flows = [_with_idle_hosts(flow, len(self.place)) for flow in flows]
        self._links = self._count_loads()

    def _count_loads(self) -> list[list[_FlowLoads]]:
        """Return the loads by phase and level.

        The levels are the tiers of switches, then the NVLink domains if they have several hosts.
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
        """Return the loads of the NVLink domains; the link of a domain is all NICs of its hosts."""
        # Domains are renumbered from 0, because single-host domains have negative
        # numbers.
        numbers: dict[int, int] = {}
        domains = domains_of(self.problem.sites, self.place)
        zone = [numbers.setdefault(domain, len(numbers)) for domain in domains]
        nics, hosts = self.problem.sites.nic_bytes_per_s, Counter(zone)
        seconds = [message_bytes / (hosts[one] * nics) for one in numbers.values()]
        # The NICs of a domain are no uplink, so their bytes are not counted.
        return _FlowLoads(flow, zone, seconds, 0.0)

    def score(self, floor_seconds: float = 0.0) -> Score:
        """Return the key of the current order of hosts that swaps minimize.

        With ``floor_seconds``: exposed seconds, at least the floor, then bytes over the busiest
        uplink, then over all uplinks. Without it: exposed seconds, then bytes over all uplinks,
        then over the busiest one. The sum over all uplinks comes first there because almost every
        swap changes it, so it guides the search while the maximum stays the same.
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

    def swap(self, one: int, other: int) -> None:
        """Exchange the hosts of two node ranks; either may be an idle host instead."""
        here, there = self.place[one], self.place[other]
        if here == there:
            return
        for row in self._links:
            for link in row:
                from_, to = link.zone[one], link.zone[other]
                if from_ != to:
                    link.move(one, to)
                    link.move(other, from_)
        self.place[one], self.place[other] = there, here

    def partners_over_slowest_links(self) -> RemotePartners:
        """Return the node ranks that communicate over the slowest links, with their partners.

        The slowest links are the two on which a single phase exposes the most seconds.
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
        """Return the node ranks that use the uplink with the most bytes, with their partners.

        Node ranks of the phase with the most bytes come first.
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
    """Return the node ranks below the switch ``inside`` whose partners are not all below it.

    Each comes with those of its partners that are elsewhere.
    """
    found = []
    for node, zone in enumerate(link.zone):
        if zone != inside:
            continue
        others = {*link.flow.sends[node], *link.flow.receives[node]}
        for group in link.flow.groups_of[node]:
            others |= link.flow.members[group].keys()
        away = {other for other in others if link.zone[other] != inside}
        if away:
            found.append((node, away))
    return found


def _with_idle_hosts(flow: NodeMessages, places: int) -> NodeMessages:
    """Return ``flow`` extended to ``places`` hosts; the added idle hosts send no messages."""
    none = ((),) * (places - len(flow.sends))
    return replace(
        flow,
        sends=flow.sends + none,
        receives=flow.receives + none,
        groups_of=flow.groups_of + none,
    )
