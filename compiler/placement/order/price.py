"""What an order of hosts costs: seconds over the fullest link of every phase, then bytes.

A phase is one family of groups (tensor, context, expert, pipeline, data): families run one after
the other, and each takes as long as the fullest of the links it uses. Links are shared: the NICs
of a host carry what leaves its NVLink domain, the uplink of a switch what leaves its subtree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from parc.compiler.placement.order.sites import ALONE, Sites
from parc.compiler.topology.uplinks import Flow, host_egress, zone_egress

DIGITS = 10
"""Significant digits of a cost: costs that agree to them are equal, whatever was added first."""


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What an order of hosts costs; ``rank`` says how two of them compare."""

    exposed_seconds: float
    """Over all phases: exposure x bytes over the fullest link / its rate."""
    busiest_bytes: float
    """Bytes a step over the busiest uplink of a switch, all phases, one direction."""
    total_bytes: float
    """Bytes a step over all uplinks of switches."""

    def rank(self, floor_seconds: float) -> tuple[float, ...]:
        """What is made small, the first entry first.

        Exposed seconds count from ``floor_seconds`` on: what exposes no more is tied, and the
        bytes decide, over the busiest uplink, then over all of them.
        """
        exposed = max(self.exposed_seconds, floor_seconds)
        return (exposed, self.busiest_bytes, self.total_bytes, self.exposed_seconds)


@dataclass(frozen=True)
class Question:
    """Node ranks that send to one another, and the sites that they may get."""

    nodes: int
    flows: tuple[Flow, ...]
    sites: Sites
    tie_seconds: float = 0.0
    """Exposed seconds beyond the least of all orders that make no difference."""

    @cached_property
    def nic_seconds(self) -> tuple[float, ...]:
        """Seconds of every phase over the fullest host, where NVLink domains end at the host."""
        fullest = (max(one.alone.values(), default=0) for one in self.flows)
        return tuple(
            one.unit_bytes * messages / self._nics
            for one, messages in zip(self.flows, fullest, strict=True)
        )

    @property
    def _nics(self) -> float:
        return self.sites.nic_bytes_per_s

    def cost(self, place: Sequence[int]) -> Cost:
        """Cost of an order: ``place`` is the site of every node rank."""
        seconds = list(self._inside(place))
        busiest = total = 0.0
        for tier in self.sites.tiers:
            zone = [tier.zones[site] for site in place]
            carried = [0.0] * len(tier.bytes_per_s)
            for index, one in enumerate(self.flows):
                for number, messages in zone_egress(one, zone).items():
                    sent = messages * one.unit_bytes
                    carried[number] += sent
                    seconds[index] = max(seconds[index], sent / tier.bytes_per_s[number])
            busiest = max(busiest, *carried)
            total += sum(carried)
        exposed = sum(one.exposure * spent for one, spent in zip(self.flows, seconds, strict=True))
        return Cost(rounded(exposed), rounded(busiest), rounded(total))

    def _inside(self, place: Sequence[int]) -> Iterator[float]:
        """Seconds of every phase over the NICs of the fullest host."""
        if not self.sites.wide:
            yield from self.nic_seconds
            return
        domain = domains_of(self.sites, place)
        for one in self.flows:
            fullest = max(host_egress(one, domain).values(), default=0)
            yield one.unit_bytes * fullest / self._nics


def domains_of(sites: Sites, place: Sequence[int]) -> list[int]:
    """NVLink domain of every node rank; one that is a domain by itself gets a number below 0."""
    found = (sites.domains[site] for site in place)
    return [~node if domain == ALONE else domain for node, domain in enumerate(found)]


def rounded(value: float) -> float:
    """``value`` to DIGITS significant digits."""
    return float(f"{value:.{DIGITS}g}")
