"""Messages over every link under an order of hosts that changes by swaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import mul

from parc.compiler.placement.order.messages import Messages
from parc.compiler.placement.order.price import Question, domains_of

Score = tuple[float, float, float]
"""What swaps make small, the first entry first."""

Crossing = list[tuple[int, set[int]]]
"""Node ranks under a full link, and their partners beyond it."""


class _Link:
    """What one flow sends out of the zones of one level."""

    def __init__(self, flow: Messages, zone: list[int], seconds: list[float]) -> None:
        """``seconds``: by zone, what one message takes over its uplink."""
        self.flow, self.zone, self.seconds = flow, zone, seconds
        self.message_bytes = flow.unit_bytes * flow.parallel
        self.sent = [0] * len(seconds)
        self.inside: list[Counter[int]] = []
        for here, others in zip(zone, flow.sends, strict=True):
            for other in others:
                if zone[other] != here:
                    self.sent[here] += 1
        for meeting, size in zip(flow.meetings, flow.sizes, strict=True):
            members: Counter[int] = Counter()
            for node, count in meeting.items():
                members[zone[node]] += count
            self.inside.append(members)
            for where, count in members.items():
                self.sent[where] += count * (size - count)

    def fullest(self) -> float:
        """Seconds over the fullest uplink."""
        return max(map(mul, self.sent, self.seconds), default=0.0)

    def fullest_zone(self) -> int:
        """The first of the zones with the fullest uplink."""
        spent = list(map(mul, self.sent, self.seconds))
        return spent.index(max(spent))

    def move(self, node: int, to: int) -> None:
        """Count ``node`` in the zone ``to``."""
        zone, sent, here = self.zone, self.sent, self.zone[node]
        if here == to:
            return
        for other in self.flow.sends[node]:
            there = zone[other]
            sent[here] -= there != here
            sent[to] += there != to
        for other in self.flow.gets[node]:
            there = zone[other]
            sent[there] += (there == here) - (there == to)
        for group in self.flow.member_of[node]:
            self._move_member(group, node, here, to)
        zone[node] = to

    def _move_member(self, group: int, node: int, here: int, to: int) -> None:
        members, size = self.inside[group], self.flow.sizes[group]
        count = self.flow.meetings[group][node]
        for where, change in ((here, -count), (to, count)):
            old = members[where]
            self.sent[where] += (old + change) * (size - old - change) - old * (size - old)
            members[where] = old + change


class Loads:
    """All links under one order; ``place`` is the site of every node rank, then of idle hosts.

    Where NVLink domains span hosts, the NICs of a domain count as one link of all its hosts.
    """

    def __init__(self, question: Question, flows: Sequence[Messages], place: Iterable[int]) -> None:
        """``place`` is that of the node ranks; hosts that are left become idle ones."""
        self.question, self.place = question, list(place)
        free = Counter(dict(enumerate(question.sites.sizes)))
        free.subtract(self.place)
        self.place += [site for site, count in sorted(free.items()) for _ in range(count)]
        self._flows = [_padded(flow, len(self.place)) for flow in flows]
        self._links = self._make_links()

    def _make_links(self) -> list[list[_Link]]:
        """Links by flow."""
        sites = self.question.sites
        rows: list[list[_Link]] = [[] for _ in self._flows]
        for flow, row in zip(self._flows, rows, strict=True):
            message = flow.unit_bytes * flow.parallel
            for tier in sites.tiers:
                zone = [tier.zones[site] for site in self.place]
                row.append(_Link(flow, zone, [message / rate for rate in tier.bytes_per_s]))
            if sites.wide:
                row.append(self._domain_link(flow, message))
        return rows

    def _domain_link(self, flow: Messages, message: float) -> _Link:
        numbers: dict[int, int] = {}
        domains = domains_of(self.question.sites, self.place)
        zone = [numbers.setdefault(domain, len(numbers)) for domain in domains]
        nics, hosts = self.question.sites.nic_bytes_per_s, Counter(zone)
        return _Link(flow, zone, [message / (hosts[one] * nics) for one in numbers.values()])

    def score(self, floor_seconds: float = 0.0) -> Score:
        """Of the order as it is now; exposed seconds count from ``floor_seconds`` on.

        Then bytes over the busiest uplink and over all of them. Without a floor, all uplinks come
        first: on the way to less exposure they tell more orders apart.
        """
        exposed = 0.0
        floors = self.question.nic_seconds
        for row, flow, floor in zip(self._links, self._flows, floors, strict=True):
            least = 0.0 if self.question.sites.wide else floor
            spent = max((link.fullest() for link in row), default=0.0)
            exposed += flow.exposure * max(spent, least)
        carried = self._carried()
        busiest, total = max(map(max, carried), default=0.0), sum(map(sum, carried))
        return (
            (max(exposed, floor_seconds), busiest, total)
            if floor_seconds
            else (
                exposed,
                total,
                busiest,
            )
        )

    def _carried(self) -> list[list[float]]:
        """Bytes over every uplink, by tier."""
        tiers = []
        for links in list(zip(*self._links, strict=True))[: len(self.question.sites.tiers)]:
            sums = [0.0] * len(links[0].sent)
            for link in links:
                size = link.message_bytes
                sums = [before + sent * size for before, sent in zip(sums, link.sent, strict=True)]
            tiers.append(sums)
        return tiers

    def swap(self, one: int, other: int) -> None:
        """Two node ranks (or idle hosts) change places."""
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

    def crossing(self) -> Crossing:
        """(node rank under one of the two dearest links, its partners beyond that link)."""
        rows = [
            (flow.exposure * link.fullest(), index, link)
            for index, (row, flow) in enumerate(zip(self._links, self._flows, strict=True))
            for link in row
        ]
        found: Crossing = []
        for spent, _, link in sorted(rows, key=lambda row: (-row[0], row[1]))[:2]:
            if spent:
                found += _partners(link, link.fullest_zone())
        return found

    def busiest_crossing(self) -> Crossing:
        """The same for the uplink with the most bytes, all flows, the largest first."""
        carried = self._carried()
        busiest = max(map(max, carried), default=0.0)
        found: Crossing = []
        if busiest:
            tier = next(index for index, sums in enumerate(carried) if max(sums) == busiest)
            zone = carried[tier].index(busiest)
            links = [row[tier] for row in self._links if row[tier].sent[zone]]
            for link in sorted(links, key=lambda link: -link.sent[zone] * link.message_bytes):
                found += _partners(link, zone)
        return found


def _partners(link: _Link, inside: int) -> Crossing:
    """Node ranks of the zone ``inside`` that talk across its uplink, and whom they talk to."""
    found = []
    for node, zone in enumerate(link.zone):
        if zone != inside:
            continue
        others = {*link.flow.sends[node], *link.flow.gets[node]}
        for group in link.flow.member_of[node]:
            others |= link.flow.meetings[group].keys()
        away = {other for other in others if link.zone[other] != inside}
        if away:
            found.append((node, away))
    return found


def _padded(flow: Messages, places: int) -> Messages:
    """``flow`` with idle hosts that send nothing."""
    none = ((),) * (places - len(flow.sends))
    return replace(
        flow, sends=flow.sends + none, gets=flow.gets + none, member_of=flow.member_of + none
    )
