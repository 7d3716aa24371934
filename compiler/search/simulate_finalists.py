"""Choice of the serving layouts that meet all latency limits of the spec in a simulation.

The search compares mean latencies, which closed-form formulas estimate quickly. With random
arrivals, latencies vary from request to request. The best layouts are therefore simulated, with
more replicas or less load than the formulas need, until they meet every limit of the spec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from parc.compiler.evaluate.evaluate_service import (
    allowed_replica_counts,
    estimate_at,
    is_load_searched,
    objective_value,
    rank_services,
    request_seconds,
    simulate_service,
)
from parc.compiler.ir import ServingEstimate, ServingProblem
from parc.compiler.ir.serving import ServiceStatistics
from parc.compiler.ir.serving_goals import LatencyLimit, ServingGoals
from parc.compiler.topology.arrange_hosts import compact_replica_counts

FINALISTS = 5
"""Number of best layouts that are simulated; one simulation takes about 0.1 CPU seconds."""
FASTEST = 3
"""Number of layouts with the shortest request times that are simulated if no finalist meets the
limits."""
MARGIN = 0.97
"""Fraction of a limit that a simulated value may reach. The margin is needed because the mean of
2,000 requests varies by 2 to 3 % between samples."""
OTHER_SAMPLES = (1, 2)
"""Seeds of two more samples in which a deployment must meet the limits. Near saturation, queues
differ so much between samples that a single one is often met by chance."""
LOAD_MARGIN = 1.02
"""Factor on a load that PARC determines, in these samples: the limits must hold at slightly more
load, because the latencies of a busy service rise steeply."""
RATES = (1.0, 0.85, 0.7, 0.5, 0.25, 0.06)
"""Request rates that are tried in this order until one meets the limits, as fractions of the
largest rate that meets them according to the closed-form formulas."""
RATE_ROUNDS = 2
"""Number of bisections between the first rate that meets the limits and the rate before it."""


def simulate_finalists(
    problem: ServingProblem, order: Sequence[ServingEstimate], most: float = math.inf
) -> list[ServingEstimate]:
    """Return the estimates of ``order`` that meet all limits in the simulation, best first.

    ``order`` is sorted by ``rank_services``. Only the ``FINALISTS`` best estimates are simulated,
    and if all of them miss a limit, the ``FASTEST`` others with the shortest request times. The
    result may have less load or more replicas than ``order``. Estimates whose objective value
    exceeds ``most`` are left out.
    """
    finalists, others = order[:FINALISTS], order[FINALISTS:]
    fastest = sorted(others, key=lambda found: request_seconds(problem, found))[:FASTEST]
    return adjust_to_limits(problem, finalists, most) or adjust_to_limits(problem, fastest, most)


def adjust_to_limits(
    problem: ServingProblem, order: Sequence[ServingEstimate], most: float
) -> list[ServingEstimate]:
    """Return the estimates with the load or replicas that meet all limits, best first.

    An estimate is left out if it cannot be better than ``most`` or than the best adjusted one,
    because adjusting only makes estimates worse.
    """
    adjusted: list[ServingEstimate] = []
    for found in order:
        if objective_value(problem, found)[0] > most:
            continue
        within = (
            _with_less_load(problem, found, most)
            if is_load_searched(problem)
            else _with_more_replicas(problem, found, most)
        )
        if within is not None:
            adjusted.append(within)
            most = min(most, objective_value(problem, within)[0])
    return rank_services(problem, adjusted)


def with_statistics(problem: ServingProblem, found: ServingEstimate) -> ServingEstimate:
    """Return the estimate with the statistics of its simulation."""
    simulated = simulate_service(problem, found.layout, found.solved_request_rate)
    return replace(found, simulated=simulated)


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
    is_mean_fitted = problem.service.traffic.concurrency is not None
    missed = missed_limits(problem.goals, statistics)
    return [one for one in missed if not (is_mean_fitted and one[0].statistic == "mean")]


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


def _with_more_replicas(
    problem: ServingProblem, found: ServingEstimate, most: float
) -> ServingEstimate | None:
    """Return the estimate with the fewest replicas that meet the limits; None if no number does.

    Numbers of replicas whose objective value would exceed ``most`` are not tried.
    """
    allowed = allowed_replica_counts(problem, found.layout)
    counts = [count for count in allowed if count >= found.layout.replicas]
    if problem.minimizes_gpus:
        host_gpus = problem.cluster.node.gpus
        compact = compact_replica_counts(found.layout, host_gpus, counts)
        counts = [count for count in compact if count * found.layout.engine_gpus <= most]
    else:
        counts = counts[:1]  # already the largest useful number
    counts = counts or [found.layout.replicas]

    def simulate_with(replicas: int) -> ServingEstimate | None:
        layout = replace(found.layout, replicas=replicas)
        estimate = found if layout == found.layout else estimate_at(problem, layout)
        return _simulate_within_limits(problem, estimate)

    return _result_for_smallest_count(counts, simulate_with)


def _result_for_smallest_count(
    counts: list[int], simulate_with: Callable[[int], ServingEstimate | None]
) -> ServingEstimate | None:
    """Return the result of ``simulate_with`` for the smallest count for which it is not None.

    ``counts`` is in ascending order. More replicas never make a service slower, so the counts can
    be bisected. The answer is usually among the first counts, so doubling steps find an upper bound
    first.
    """
    low, step, best = -1, 1, None
    high = 0
    while True:
        best = simulate_with(counts[high])
        if best is not None or high == len(counts) - 1:
            break
        low, high, step = high, min(high + step, len(counts) - 1), 2 * step
    if best is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        fewer = simulate_with(counts[middle])
        if fewer is None:
            low = middle
        else:
            high, best = middle, fewer
    return best


def _with_less_load(
    problem: ServingProblem, found: ServingEstimate, most: float
) -> ServingEstimate | None:
    """Return the estimate at the largest load that meets the limits; None if no load does.

    Loads at which the objective value would exceed ``most`` are not tried.
    """
    largest_rate = found.solved_request_rate or 0.0
    # The cost of a token and the time per token of all replicas are inversely proportional to the
    # load. Numbers of GPUs do not depend on it.
    least = 0.0 if problem.minimizes_gpus else objective_value(problem, found)[0] / most

    def simulate_at(rate: float) -> ServingEstimate | None:
        return _simulate_within_limits(problem, estimate_at(problem, found.layout, rate))

    if least and simulate_at(largest_rate * least) is None:
        return None
    high = largest_rate
    for share in (*(one for one in RATES if one > least), *((least,) if least else ())):
        low = largest_rate * share
        best = simulate_at(low)
        if best is not None:
            break
        high = low
    else:
        return None
    for _ in range(RATE_ROUNDS if low < largest_rate else 0):
        middle = math.sqrt(low * high)
        more = simulate_at(middle)
        if more is None:
            high = middle
        else:
            low, best = middle, more
    return best


def _simulate_within_limits(
    problem: ServingProblem, found: ServingEstimate
) -> ServingEstimate | None:
    """Return the estimate with simulated statistics; None if the simulation misses a limit."""
    simulated = with_statistics(problem, found)
    if missed_in_simulation(problem, simulated):
        return None
    rate = found.solved_request_rate
    more = None if rate is None else rate * LOAD_MARGIN
    for seed in OTHER_SAMPLES if simulated.simulated is not None else ():
        other = simulate_service(problem, found.layout, more, seed)
        if missed_in_simulation(problem, replace(found, simulated=other)):
            return None
    return simulated
