"""The switches of one level, and the least cost of a job over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt

MOST_SLACK = 64
"""Number of idle hosts up to which the bound over all switches of a level is computed. With more
idle hosts, switches can be filled in so many ways that the bound is weak and slow; the bounds of
single groups remain."""

SwitchCost = Callable[[int, float], float]
"""Function from (node ranks below a switch, rate of its uplink in bytes/s) to the cost of the
switch."""


@dataclass(frozen=True)
class SwitchLevel:
    """Switches of one level: the number of hosts below each, and the rate of its uplink."""

    nodes: int
    """Node ranks of the job."""
    switches: tuple[tuple[int, float], ...]
    """(hosts below, bytes/s of the uplink) of every switch."""
    host_bytes_per_s: float = 0.0
    """Rate of the NICs of a host, set for NVLink domains only: their traffic leaves over the NICs
    of each host, not over a shared uplink."""

    @cached_property
    def slack(self) -> int:
        """Return the number of hosts below these switches that stay idle."""
        return sum(hosts for hosts, _ in self.switches) - self.nodes

    @cached_property
    def bytes_per_s(self) -> float:
        """Return the rate of all uplinks of the level together, in bytes/s."""
        return sum(rate for _, rate in self.switches)

    @cached_property
    def cut_evaluations(self) -> float:
        """Return the approximate work to compute the lower bound of this level.

        The unit is one evaluation of the process groups that a switch cuts.
        """
        return sum(
            (min(self.slack, hosts) + 1) * hosts * sqrt(hosts) for (hosts, _), _ in self._distinct
        )

    @cached_property
    def _distinct(self) -> list[tuple[tuple[int, float], int]]:
        """Return ((hosts, uplink rate), number of such switches) for each kind of switch.

        Equal switches are counted, so that each kind of switch is evaluated once.
        """
        return sorted(Counter(self.switches).items())

    def least_seconds(self, cost: SwitchCost, floor: float) -> float:
        """Return the least time, at least ``floor``, in which the switches can serve the whole job.

        ``cost`` returns the seconds that a switch needs if a given number of node ranks is below
        it. In a given time, a switch can serve the largest number of node ranks for which it needs
        no more than that time.
        """
        if self.slack > MOST_SLACK:
            return floor
        options = [
            (count, [(cost(contained, rate), contained) for contained in self._fill_range(hosts)])
            for (hosts, rate), count in self._distinct
        ]
        # The minimum is a time that some switch needs for some number of node ranks.
        times = {time for _, costs in options for time, _ in costs if time > floor}
        for time in [floor, *sorted(times)]:
            if self._capacity(options, time) >= self.nodes:
                return time
        return floor

    def sum_of_minima(self, cost: SwitchCost) -> float:
        """Return the sum of the least ``cost`` of each switch; 0.0 if too many hosts are idle."""
        if self.slack > MOST_SLACK:
            return 0.0
        return sum(
            count * min(cost(contained, rate) for contained in self._fill_range(hosts))
            for (hosts, rate), count in self._distinct
        )

    def groups_cut(self, size: int) -> int:
        """Return how many process groups must span two switches, however the hosts are ordered.

        A group has ``size`` node ranks.
        """
        whole = sum(hosts // size for hosts, _ in self.switches)
        return max(self.nodes // size - whole, 0)

    def _fill_range(self, hosts: int) -> range:
        """Return the possible numbers of node ranks below a switch that has ``hosts`` hosts."""
        # A switch leaves at most all idle hosts of the job unused.
        return range(max(hosts - self.slack, 0), min(hosts, self.nodes) + 1)

    @staticmethod
    def _capacity(options: list[tuple[int, list[tuple[float, int]]]], time: float) -> float:
        """Return how many node ranks the switches can serve if none needs more than ``time``."""
        return sum(
            count * max((contained for cost, contained in costs if cost <= time), default=-inf)
            for count, costs in options
        )
