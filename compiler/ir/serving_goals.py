"""Goals of a serving job: its objective, and limits on latency, memory and parallel sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.problem import SizeLimit

LatencyName = Literal["ttft", "tpot", "e2e"]
LATENCIES: tuple[LatencyName, ...] = ("ttft", "tpot", "e2e")
"""Names of the latencies that goals can limit."""
LARGEST_MEAN_TO_MEDIAN = 2.0
"""Largest ratio of mean to median of a latency that the search assumes before the simulation, which
checks the median itself."""


@frozen
class LatencyLimit:
    """Upper limit on one statistic of a latency."""

    latency: LatencyName
    statistic: Literal["mean", "p50", "p90", "p99", "each"]
    """Statistic that is limited. ``each`` limits the latency of single requests: at least the share
    ``ServingGoals.goodput`` of the requests must be within all such limits."""
    seconds: float

    @property
    def text(self) -> str:
        """Name of the limited statistic, such as ``ttft`` for a mean or ``ttft p99``."""
        return self.latency if self.statistic == "mean" else f"{self.latency} {self.statistic}"


@frozen
class ServingGoals:
    """Objective by which the search ranks layouts, and limits on latency and memory."""

    maximize: Literal["throughput", "fewest-gpus", "lowest-cost", "latency"]
    latency_limits: tuple[LatencyLimit, ...]
    goodput: float | None
    """Minimum share of requests that meet all limits on ``each`` request; None if there are no such
    limits."""
    memory_headroom: float
    """Fraction of device memory that the engine must leave free, for example 0.08 for 8 %."""
    limits: tuple[SizeLimit, ...] = ()

    @property
    def ttft_seconds(self) -> float | None:
        """Upper limit on the mean time to the first token; None: no limit."""
        return self.mean_limit("ttft")

    @property
    def tpot_seconds(self) -> float | None:
        """Upper limit on the mean time per output token; None: no limit."""
        return self.mean_limit("tpot")

    @property
    def e2e_seconds(self) -> float | None:
        """Upper limit on the mean time of a request; None: no limit."""
        return self.mean_limit("e2e")

    @property
    def has_latency_limit(self) -> bool:
        """True if the spec limits a latency."""
        return bool(self.latency_limits)

    def with_higher_limit(self, raised: LatencyLimit, factor: float) -> ServingGoals:
        """Return a copy of the goals in which the limit ``raised`` is multiplied by ``factor``."""
        limits = tuple(
            replace(one, seconds=one.seconds * factor) if one == raised else one
            for one in self.latency_limits
        )
        return replace(self, latency_limits=limits)

    def mean_limit(self, latency: LatencyName) -> float | None:
        """Return the upper limit in seconds on the mean of a latency; None without a limit.

        Limits on percentiles are included, because they also bound the mean: the mean is assumed to
        be below p90 and p99, and at most ``LARGEST_MEAN_TO_MEDIAN`` times the median.
        """
        bounds = [
            one.seconds * (LARGEST_MEAN_TO_MEDIAN if one.statistic == "p50" else 1)
            for one in self.latency_limits
            if one.latency == latency
        ]
        return min(bounds, default=None)
