"""Loads of all links under an order of hosts, updated swap by swap.

A full evaluation (``PlacementProblem.cost``) counts all messages again. Here a swap changes only
the counts of the messages of two node ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import mul

from parc.compiler.placement.order.messages import NodeMessages
from parc.compiler.placement.order.placement_problem import PlacementProblem, domains_of

Score = tuple[float, float, float]
"""Key that swaps minimize, the first entry first."""

RemotePartners = list[tuple[int, set[int]]]
"""Node ranks below a link, each with the partners that it reaches over the link."""


class _FlowLoads:
    """Messages of one flow out of each zone (switch or NVLink domain) of one level."""

    def __init__(self, flow: NodeMessages, zone: list[int], seconds: list[float]) -> None:
        """``zone``: zone of every node rank; ``seconds``: of one message over each uplink."""
        self.flow, self.zone, self.seconds = flow, zone, seconds
        self.message_bytes = flow.unit_bytes * flow.parallel
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
        """Return the seconds over the busiest uplink."""
        return max(map(mul, self.sent, self.seconds), default=0.0)

    def busiest_zone(self) -> int:
        """Return the zone with the busiest uplink, the first of equals."""
        spent = list(map(mul, self.sent, self.seconds))
        return spent.index(max(spent))

    def move(self, node: int, to: int) -> None:
        """Move ``node`` to the zone ``to`` and update the counts."""
        zone, sent, here = self.zone, self.sent, self.zone[node]
        if here == to:
            return
        for other in self.flow.sends[node]:
            there = zone[other]
            sent[here] -= there != here
            sent[to] += there != to
        for other in self.flow.receives[node]:
            there = zone[other]
            sent[there] += (there == here) - (there == to)
        for group in self.flow.groups_of[node]:
            self._move_member(group, node, here, to)
        zone[node] = to

    def _move_member(self, group: int, node: int, here: int, to: int) -> None:
        """Update the counts of an all-to-all group: k of n members send k (n - k) messages."""
        members, size = self.inside[group], self.flow.sizes[group]
        count = self.flow.members[group][node]
        for where, change in ((here, -count), (to, count)):
            old = members[where]
            self.sent[where] += (old + change) * (size - old - change) - old * (size - old)
            members[where] = old + change


class LinkLoads:
    """Loads of all links; ``place`` is the site of every node rank, then of every idle host.

    If NVLink domains span hosts, the NICs of a domain count as one link of all its hosts.
    """

    def __init__(
        self, problem: PlacementProblem, flows: Sequence[NodeMessages], place: Iterable[int]
    ) -> None:
        """``place``: site of every node rank. Idle hosts are added, so that swaps can use them."""
        self.problem, self.place = problem, list(place)
        free = Counter(dict(enumerate(problem.sites.sizes)))
        free.subtract(self.place)
        self.place += [site for site, count in sorted(free.items()) for _ in range(count)]
        self._flows = [_with_idle_hosts(flow, len(self.place)) for flow in flows]
        self._links = self._count_all()

    def _count_all(self) -> list[list[_FlowLoads]]:
        """Return the loads by flow, then by level: tiers first, then NVLink domains."""
        sites = self.problem.sites
        rows: list[list[_FlowLoads]] = [[] for _ in self._flows]
        for flow, row in zip(self._flows, rows, strict=True):
            message = flow.unit_bytes * flow.parallel
            for tier in sites.tiers:
                zone = [tier.zones[site] for site in self.place]
                row.append(_FlowLoads(flow, zone, [message / rate for rate in tier.bytes_per_s]))
            if sites.multi_host_domains:
                row.append(self._domain_loads(flow, message))
        return rows

    def _domain_loads(self, flow: NodeMessages, message_bytes: float) -> _FlowLoads:
        numbers: dict[int, int] = {}
        domains = domains_of(self.problem.sites, self.place)
        zone = [numbers.setdefault(domain, len(numbers)) for domain in domains]
        nics, hosts = self.problem.sites.nic_bytes_per_s, Counter(zone)
        seconds = [message_bytes / (hosts[one] * nics) for one in numbers.values()]
        return _FlowLoads(flow, zone, seconds)

    def score(self, floor_seconds: float = 0.0) -> Score:
        """Return the key of the current order.

        With ``floor_seconds``: exposed seconds, at least the floor, then bytes over the busiest
        uplink, then over all uplinks. Without: exposed seconds, then bytes over all uplinks, then
        over the busiest one, because the sum changes with almost every swap and so leads the way
        while the maximum stays the same.
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
        """Return the bytes over every uplink, by tier."""
        tiers = []
        for links in list(zip(*self._links, strict=True))[: len(self.problem.sites.tiers)]:
            sums = [0.0] * len(links[0].sent)
            for link in links:
                size = link.message_bytes
                sums = [before + sent * size for before, sent in zip(sums, link.sent, strict=True)]
            tiers.append(sums)
        return tiers

    def swap(self, one: int, other: int) -> None:
        """Exchange the sites of two node ranks (or idle hosts)."""
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
        """Return the partners over the two links that expose the most seconds of one flow."""
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
        """Return the partners over the uplink with the most bytes, the largest flow first."""
        carried = self._uplink_bytes()
        busiest = max(map(max, carried), default=0.0)
        found: RemotePartners = []
        if busiest:
            tier = next(index for index, sums in enumerate(carried) if max(sums) == busiest)
            zone = carried[tier].index(busiest)
            links = [row[tier] for row in self._links if row[tier].sent[zone]]
            for link in sorted(links, key=lambda link: -link.sent[zone] * link.message_bytes):
                found += _remote_partners(link, zone)
        return found


def _remote_partners(link: _FlowLoads, inside: int) -> RemotePartners:
    """Return the node ranks of the zone ``inside`` with partners outside it, and the partners."""
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
    """Return ``flow`` for ``places`` hosts; the idle ones send nothing."""
    none = ((),) * (places - len(flow.sends))
    return replace(
        flow,
        sends=flow.sends + none,
        receives=flow.receives + none,
        groups_of=flow.groups_of + none,
    )
