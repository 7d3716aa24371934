"""Checks of simulated services: latency limits, and a request rate that they cannot sustain."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from operator import itemgetter

from parc.compiler.cost.serving.simulation.stop_rule import StopRule
from parc.compiler.ir import ServingEstimate, ServingProblem
from parc.compiler.ir.serving import Distribution, ServiceStatistics
from parc.compiler.ir.serving_goals import LatencyLimit, ServingGoals

MARGIN = 0.97
"""Fraction of a limit that a simulated value may reach. The margin is needed because the mean of
2,000 requests varies by 2 to 3 % between samples."""


def cannot_sustain(problem: ServingProblem, statistics: ServiceStatistics | None) -> bool:
    """Return True if requests arrive faster than the simulated service serves them.

    Two conditions must hold: the served requests per second are below the request rate of the spec,
    and the queue grows. A sample that happens to have few arrivals meets only the first condition,
    and a burst of arrivals only the second. Both must exceed the relative standard deviation of the
    number of arrivals, 2 % for 2,000 Poisson arrivals.
    """
    traffic = problem.service.traffic
    if traffic.request_rate is None or statistics is None:
        return False
    noise = 1 / math.sqrt(statistics.requests * min(traffic.burstiness, 1.0))
    is_less = statistics.requests_per_second < (1 - noise) * traffic.request_rate
    return is_less and statistics.wait_growth > noise


def missed_in_simulation(
    problem: ServingProblem, found: ServingEstimate
) -> list[tuple[LatencyLimit, float]]:
    """Return (limit, simulated value in seconds) of each limit that the simulation misses.

    With a given concurrency, limits on means are not checked here: the closed-form formulas are
    fitted to benchmarks with a given concurrency, so they predict these means better than the
    simulation.
    """
    statistics = found.simulated
    if statistics is None:
        return []
    checked = _checked_limits(problem)
    return [one for one in missed_limits(problem.goals, statistics) if one[0] in checked]


def _checked_limits(problem: ServingProblem) -> list[LatencyLimit]:
    """Return the limits that the simulation checks (see ``missed_in_simulation``)."""
    is_mean_fitted = problem.service.traffic.concurrency is not None
    limits = problem.goals.latency_limits
    return [one for one in limits if not (is_mean_fitted and one.statistic == "mean")]


def missed_limits(
    goals: ServingGoals, statistics: ServiceStatistics
) -> list[tuple[LatencyLimit, float]]:
    """Return (limit, simulated value in seconds) of each limit that ``statistics`` miss.

    For a limit on each request, the value is the 99th percentile.
    """
    has_goodput = (
        goals.goodput is None
        or statistics.within_limits is None
        or statistics.within_limits >= goals.goodput
    )
    missed = []
    for limit in goals.latency_limits:
        value = simulated_value(statistics, limit)
        if (not has_goodput) if limit.statistic == "each" else value > MARGIN * limit.seconds:
            missed.append((limit, value))
    return missed


def simulated_value(statistics: ServiceStatistics, limit: LatencyLimit) -> float:
    """Return the simulated seconds of the statistic that ``limit`` bounds."""
    found = getattr(statistics, f"{limit.latency}_seconds")
    value: float = getattr(found, "p99" if limit.statistic == "each" else limit.statistic)
    return value


def ratio_to_limit(
    statistics: ServiceStatistics, limit: LatencyLimit, goodput: float | None
) -> float:
    """Return the simulated value of the statistic that ``limit`` bounds, divided by the limit.

    For a limit on each request, the value is the percentile of the share ``goodput`` of requests
    that must meet the limits.
    """
    if limit.statistic != "each" or goodput is None:
        return simulated_value(statistics, limit) / limit.seconds
    found = getattr(statistics, f"{limit.latency}_seconds")
    return _percentile(found, goodput) / limit.seconds


def _percentile(found: Distribution, share: float) -> float:
    """Return the value that ``share`` of the requests do not exceed, interpolated."""
    steps = len(found.curve) - 1
    points = sorted(
        [*((n / steps, value) for n, value in enumerate(found.curve)), (0.99, found.p99)]
    )
    after = bisect_left(points, share, lo=1, hi=len(points) - 1, key=itemgetter(0))
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (share - left) / (right - left) * (high - low)


def stop_rule(problem: ServingProblem) -> StopRule:
    """Return the rule that ends a simulation as soon as it misses a limit that is checked here."""
    goals = problem.goals
    limits = tuple(
        one if one.statistic == "each" else replace(one, seconds=MARGIN * one.seconds)
        for one in _checked_limits(problem)
    )
    return StopRule(limits, goals.goodput)
