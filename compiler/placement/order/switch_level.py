"""The switches of one level, and the least cost of a job over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from math import inf, sqrt

from parc.compiler.ir.frozen import frozen

MOST_SLACK = 64
"""Largest number of idle hosts for which the bound over all switches of a level is computed. With
more idle hosts, switches can be filled in so many ways that the bound is weak and slow. The bounds
of single process groups are always computed."""

SwitchCost = Callable[[int, float], float]
"""Function from (node ranks below a switch, rate of its uplink in bytes/s) to the cost of the
switch."""


@frozen(slots=False)
class SwitchLevel:
    """Switches of one level: the number of hosts below each, and the rate of its uplink."""

    nodes: int
    """Node ranks of the job."""
    switches: tuple[tuple[int, float], ...]
    """(hosts below, bytes/s of the uplink) of every switch."""
    host_bytes_per_s: float = 0.0
    """Rate of the NICs of a host. Set only for NVLink domains, because messages leave a domain over
    the NICs of each host and not over a shared uplink."""

    @cached_property
    def idle_hosts(self) -> int:
        """Return the number of hosts below these switches that get no node rank."""
        return sum(hosts for hosts, _ in self.switches) - self.nodes

    @cached_property
    def bytes_per_s(self) -> float:
        """Return the rate of all uplinks of the level together, in bytes/s."""
        return sum(rate for _, rate in self.switches)

    @cached_property
    def cut_evaluations(self) -> float:
        """Return the approximate number of evaluations that the lower bound of this level needs.

        One evaluation finds the process groups that a switch cuts for one number of node ranks
        below it.
        """
        return sum(
            (min(self.idle_hosts, hosts) + 1) * hosts * sqrt(hosts)
            for (hosts, _), _ in self._equal_switches
        )

    @cached_property
    def _equal_switches(self) -> list[tuple[tuple[int, float], int]]:
        """Return ((hosts, uplink rate), number of such switches) for each kind of switch.

        Switches with the same number of hosts and the same rate are one kind, which is evaluated
        only once.
        """
        return sorted(Counter(self.switches).items())

    def least_seconds(self, cost: SwitchCost, floor: float) -> float:
        """Return the least time, at least ``floor``, in which the switches can serve the whole job.

        ``cost`` returns the seconds that a switch needs to serve a number of node ranks below it.
        Within a given time, each switch serves as many node ranks as possible. The time is
        sufficient if all switches together serve every node rank of the job.
        """
        if self.idle_hosts > MOST_SLACK:
            return floor
        options = [
            (
                count,
                [
                    (cost(contained, rate), contained)
                    for contained in self._possible_node_ranks(hosts)
                ],
            )
            for (hosts, rate), count in self._equal_switches
        ]
        # The minimum is a time that some switch needs for some number of node ranks.
        times = {time for _, costs in options for time, _ in costs if time > floor}
        for time in [floor, *sorted(times)]:
            if self._servable_node_ranks(options, time) >= self.nodes:
                return time
        return floor

    def sum_of_least_switch_costs(self, cost: SwitchCost) -> float:
        """Return the sum of the least ``cost`` of each switch; 0.0 if too many hosts are idle.

        ``cost`` is a function of the number of node ranks below a switch and the rate of its
        uplink. The least cost is the minimum over all possible numbers of node ranks.
        """
        if self.idle_hosts > MOST_SLACK:
            return 0.0
        return sum(
            count * min(cost(contained, rate) for contained in self._possible_node_ranks(hosts))
            for (hosts, rate), count in self._equal_switches
        )

    def least_groups_cut(self, size: int) -> int:
        """Return the number of process groups that span several switches even in the best order.

        Each group has ``size`` node ranks.
        """
        whole = sum(hosts // size for hosts, _ in self.switches)
        return max(self.nodes // size - whole, 0)

    def _possible_node_ranks(self, hosts: int) -> range:
        """Return the possible numbers of node ranks below a switch that has ``hosts`` hosts."""
        # A switch leaves at most all idle hosts of the job unused.
        return range(max(hosts - self.idle_hosts, 0), min(hosts, self.nodes) + 1)

    @staticmethod
    def _servable_node_ranks(
        options: list[tuple[int, list[tuple[float, int]]]], time: float
    ) -> float:
        """Return the largest number of node ranks that the switches can serve in ``time`` seconds.

        ``options`` has, for each kind of switch, the number of such switches and the possible pairs
        (seconds, node ranks served).
        """
        return sum(
            count * max((contained for cost, contained in costs if cost <= time), default=-inf)
            for count, costs in options
        )
