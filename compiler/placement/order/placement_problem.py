"""Placement problem: messages between node ranks, available hosts, and cost of an order of hosts.

The cost of an order of hosts is compared first by seconds, then by bytes. A phase is the traffic of
one family of process groups (tensor, context, expert, pipeline or data parallel). Phases run one
after another, and each takes as long as the most heavily loaded link that it uses. Links are
shared: the NICs of a host carry all traffic that leaves its NVLink domain, and the uplink of a
switch carries all traffic that leaves the hosts below the switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from parc.compiler.ir.cluster import Host
from parc.compiler.ir.frozen import frozen
from parc.compiler.placement.order.equivalent_hosts import (
    SINGLE_HOST,
    HostSites,
    UplinkTier,
)
from parc.compiler.placement.order.switch_cuts import CutModel
from parc.compiler.topology.uplinks import TrafficFlow, messages_leaving_zones, zone_egress_by_node

DIGITS = 10
"""Significant digits of a cost. Costs that agree in these digits count as equal, because the last
digits of a floating-point sum depend on the order of its terms."""


@dataclass(frozen=True, slots=True, order=True)
class PlacementCost:
    """Cost of one order of hosts. ``cost_sort_key`` defines which of two orders is better."""

    exposed_seconds: float
    """Sum over all phases of exposure x bytes over the most loaded link / rate of that link."""
    busiest_weighted: float
    """Weighted bytes per step over the busiest uplink of a switch, all phases, one direction. The
    weight of a phase follows from the placement policy (``PlacementProblem.weights``)."""
    total_weighted: float
    """Weighted bytes per step over all uplinks of switches."""
    busiest_bytes: float = field(default=0.0, compare=False)
    """Bytes per step over the busiest uplink, without weights. Used only in reports."""
    total_bytes: float = field(default=0.0, compare=False)
    """Bytes per step over all uplinks, without weights. Used only in reports."""

    def cost_sort_key(self, floor_seconds: float) -> tuple[float, ...]:
        """Return the sort key of a cost: the order of hosts with the smallest key is the best.

        Exposed times up to ``floor_seconds`` count as equal. Ties are broken by weighted bytes over
        the busiest uplink, then by weighted bytes over all uplinks, then by exposed time.
        """
        exposed = max(self.exposed_seconds, floor_seconds)
        return (exposed, self.busiest_weighted, self.total_weighted, self.exposed_seconds)


@frozen(slots=False)
class PlacementProblem:
    """Node ranks that send messages to one another, and the hosts that they can be placed on.

    A site is a set of equivalent hosts. A solution is a list ``place`` with the site of every node
    rank.
    """

    nodes: int
    """Node ranks of the job."""
    flows: tuple[TrafficFlow, ...]
    """Messages between hosts, one entry per phase. A phase is the traffic of one parallel axis."""
    cut_models: tuple[CutModel, ...]
    """Process groups of each phase, as input of the lower bounds."""
    node_axis_sizes: tuple[int, ...]
    """Number of node ranks along each axis of the grid of node ranks, the fastest axis first
    (``orders_from_boxes.py``)."""
    sites: HostSites
    """Sets of equivalent hosts, and the links above them."""
    hosts: tuple[Host, ...]
    """All usable hosts of the cluster, sorted so that hosts below one switch are neighbors."""
    weights: tuple[float, ...]
    """Weight (0 to 1) of the bytes of each phase when equally fast orders are compared. A phase of
    small weight crosses switches first; by default, this is the traffic of pipelines."""
    tie_seconds: float = 0.0
    """Tolerance in seconds. Orders of hosts count as equally fast if their exposed time exceeds
    that of the best order by at most the tolerance. It is infinite if the placement policy ignores
    time."""

    @cached_property
    def nic_seconds(self) -> tuple[float, ...]:
        """Return how many seconds each phase keeps the NICs of the busiest host busy.

        A phase is the traffic of one parallel axis. The result counts all messages that leave a
        host. If every NVLink domain ends at its host, it is the same for all orders of hosts.
        """
        fullest = (max(one.node_egress.values(), default=0) for one in self.flows)
        return tuple(
            one.unit_bytes * messages / self.sites.nic_bytes_per_s
            for one, messages in zip(self.flows, fullest, strict=True)
        )

    def cost_of_hosts(self, hosts: Iterable[Host]) -> PlacementCost:
        """Return the cost of the order of hosts ``hosts``, which are listed by node rank."""
        return self.cost([self.sites.site_by_host[host.name] for host in hosts])

    def cost(self, place: Sequence[int]) -> PlacementCost:
        """Return the cost of an order of hosts.

        ``place`` contains the site (set of equivalent hosts) of every node rank.
        """
        seconds = list(self._nic_seconds(place))
        # Busiest and total, weighted and without weights.
        largest, sums = [0.0, 0.0], [0.0, 0.0]
        for tier in self.sites.tiers:
            weighted, carried = ([0.0] * len(tier.bytes_per_s) for _ in range(2))
            for index, number, sent in self._loads_of_tier(tier, place):
                carried[number] += sent
                weighted[number] += sent * self.weights[index]
                # A phase takes as long as its slowest link of any tier.
                seconds[index] = max(seconds[index], sent / tier.bytes_per_s[number])
            for kind, found in enumerate((weighted, carried)):
                largest[kind] = max(largest[kind], *found)
                sums[kind] += sum(found)
        exposed = sum(one.exposure * spent for one, spent in zip(self.flows, seconds, strict=True))
        bytes_ = (largest[0], sums[0], largest[1], sums[1])
        return PlacementCost(
            round_significant_digits(exposed), *map(round_significant_digits, bytes_)
        )

    def seconds_of_phases(self, place: Sequence[int]) -> tuple[float, ...]:
        """Return the seconds of each phase for an order of hosts, exposed or not.

        ``place`` contains the site (set of equivalent hosts) of every node rank.
        """
        seconds = list(self._nic_seconds(place))
        for tier in self.sites.tiers:
            for index, number, sent in self._loads_of_tier(tier, place):
                seconds[index] = max(seconds[index], sent / tier.bytes_per_s[number])
        return tuple(seconds)

    def _loads_of_tier(
        self, tier: UplinkTier, place: Sequence[int]
    ) -> Iterator[tuple[int, int, float]]:
        """Yield (index of a phase, number of a switch, bytes that leave the switch) of ``tier``.

        ``place`` contains the site (set of equivalent hosts) of every node rank.
        """
        zone = [tier.zones[site] for site in place]
        for index, one in enumerate(self.flows):
            for number, messages in messages_leaving_zones(one, zone).items():
                yield index, number, messages * one.unit_bytes

    def _nic_seconds(self, place: Sequence[int]) -> Iterator[float]:
        """Yield, for each phase, how many seconds it keeps the NICs of the busiest host busy.

        A phase is the traffic of one parallel axis. ``place`` contains the site (set of equivalent
        hosts) of every node rank.
        """
        if not self.sites.multi_host_domains:
            yield from self.nic_seconds
            return
        domain = domain_of_each_node_rank(self.sites, place)
        for one in self.flows:
            fullest = max(zone_egress_by_node(one, domain).values(), default=0)
            yield one.unit_bytes * fullest / self.sites.nic_bytes_per_s


def domain_of_each_node_rank(sites: HostSites, place: Sequence[int]) -> list[int]:
    """Return the number of the NVLink domain of each node rank.

    Each domain that consists of a single host has its own negative number.
    """
    found = (sites.domains[site] for site in place)
    # ~node is negative and different for every node rank.
    return [~node if domain == SINGLE_HOST else domain for node, domain in enumerate(found)]


def round_significant_digits(value: float) -> float:
    """Return ``value`` rounded to ``DIGITS`` significant digits."""
    return float(f"{value:.{DIGITS}g}")
