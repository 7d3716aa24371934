"""Switches of one level, and what they send at least together if each has its price by load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt

MOST_SLACK = 64
"""Idle hosts for which a bound is sought; beyond, what groups need by themselves holds alone."""


@dataclass(frozen=True)
class SwitchLevel:
    """Switches of one level: how many node ranks each can hold, and its rate."""

    nodes: int
    switches: tuple[tuple[int, float], ...]
    """(hosts, bytes a second out) of every switch."""
    host_bytes_per_s: float = 0.0
    """NICs of a host, for NVLink domains: what leaves one does so host by host."""

    @cached_property
    def slack(self) -> int:
        """Hosts that stay idle."""
        return sum(room for room, _ in self.switches) - self.nodes

    @cached_property
    def bytes_per_s(self) -> float:
        """Out of all switches together."""
        return sum(rate for _, rate in self.switches)

    @cached_property
    def steps(self) -> float:
        """About how many cuts of grids a bound looks at for this level."""
        return sum((min(self.slack, room) + 1) * room * sqrt(room) for (room, _), _ in self._alike)

    @cached_property
    def _alike(self) -> list[tuple[tuple[int, float], int]]:
        return sorted(Counter(self.switches).items())

    def least(self, spent: Callable[[int, float], float], floor: float) -> float:
        """The least time, ``floor`` or more, for which the switches have room for the job.

        ``spent`` is what a switch costs by (node ranks held, rate).
        """
        if self.slack > MOST_SLACK:
            return floor
        options = [
            (count, [(spent(held, rate), held) for held in self._fills(room)])
            for (room, rate), count in self._alike
        ]
        times = {time for _, costs in options for time, _ in costs if time > floor}
        for time in [floor, *sorted(times)]:
            if self._room(options, time) >= self.nodes:
                return time
        return floor

    def sum(self, sent: Callable[[int, float], float]) -> float:
        """What all switches send at least, each for itself; 0.0 where too many hosts are idle."""
        if self.slack > MOST_SLACK:
            return 0.0
        return sum(
            count * min(sent(held, rate) for held in self._fills(room))
            for (room, rate), count in self._alike
        )

    def groups_cut(self, size: int) -> int:
        """Groups of ``size`` node ranks that no order keeps under one switch."""
        whole = sum(room // size for room, _ in self.switches)
        return max(self.nodes // size - whole, 0)

    def _fills(self, room: int) -> range:
        return range(max(room - self.slack, 0), min(room, self.nodes) + 1)

    @staticmethod
    def _room(options: list[tuple[int, list[tuple[float, int]]]], time: float) -> float:
        """Node ranks that the switches hold where none takes longer than ``time``."""
        return sum(
            count * max((held for spent, held in costs if spent <= time), default=-inf)
            for count, costs in options
        )
