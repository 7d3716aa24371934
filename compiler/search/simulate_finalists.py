"""Simulation of the best serving layouts: those that keep all latency limits, best first.

The search compares mean latencies from closed formulas, which are fast. Under real arrivals, a
latency varies from request to request. The best layouts are therefore simulated, with more replicas
or less load than the formulas need, until they keep every limit of the spec.
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
from parc.compiler.ir.serving_plan import LatencyLimit
from parc.compiler.topology.arrange_hosts import compact_replica_counts

FINALISTS = 5
"""Number of best layouts that are simulated; one simulation takes about 0.1 CPU seconds."""
FASTEST = 3
"""Number of layouts with the shortest requests that are simulated if no finalist keeps the
limits."""
MARGIN = 0.97
"""Fraction of a limit that the simulated value may reach. The mean of 2,000 requests varies by 2 to
3 % between samples."""
RATES = (1.0, 0.85, 0.7, 0.5, 0.25, 0.06)
"""Request rates that are tried until one keeps the limits, divided by the one that the closed
formulas allow."""
RATE_ROUNDS = 2
"""Number of bisections between the first rate that keeps the limits and the one before it."""


def simulate_finalists(
    problem: ServingProblem, order: Sequence[ServingEstimate], most: float = math.inf
) -> list[ServingEstimate]:
    """Return the estimates of ``order`` that keep all limits in the simulation, best first.

    Only the ``FINALISTS`` best estimates are simulated, and if all of them miss a limit, those with
    the shortest requests. The load or the number of replicas in the result may differ from those in
    ``order``, which is sorted by ``rank_services``. Estimates whose objective value exceeds
    ``most`` are left out.
    """
    finalists, others = order[:FINALISTS], order[FINALISTS:]
    fastest = sorted(others, key=lambda found: request_seconds(problem, found))[:FASTEST]
    return _held_estimates(problem, finalists, most) or _held_estimates(problem, fastest, most)


def _held_estimates(
    problem: ServingProblem, order: Sequence[ServingEstimate], most: float
) -> list[ServingEstimate]:
    """Return the estimates that keep all limits, best first.

    An estimate is left out if it cannot be better than the best one before it or than ``most``,
    because the simulation only makes estimates worse.
    """
    held: list[ServingEstimate] = []
    for found in order:
        if objective_value(problem, found)[0] > most:
            continue
        kept = (
            _with_less_load(problem, found, most)
            if is_load_searched(problem)
            else _with_more_replicas(problem, found, most)
        )
        if kept is not None:
            held.append(kept)
            most = min(most, objective_value(problem, kept)[0])
    return rank_services(problem, held)


def with_statistics(problem: ServingProblem, found: ServingEstimate) -> ServingEstimate:
    """Return the estimate with the statistics of its simulation."""
    simulated = simulate_service(problem, found.layout, found.solved_request_rate)
    return replace(found, simulated=simulated)


def missed_in_simulation(
    problem: ServingProblem, found: ServingEstimate
) -> list[tuple[LatencyLimit, float]]:
    """Return (limit, simulated value in seconds) of each limit that the simulation misses.

    For a limit on each request, the value is the 99th percentile. With a given concurrency, the
    closed formulas decide on limits on means, because they are fitted to benchmarks with a given
    concurrency.
    """
    statistics, goals = found.simulated, problem.goals
    if statistics is None:
        return []
    is_mean_fitted = problem.service.traffic.concurrency is not None
    each_held = (
        goals.goodput is None
        or statistics.within_limits is None
        or statistics.within_limits >= goals.goodput
    )
    missed = []
    for limit in goals.latency_limits:
        if limit.statistic == "mean" and is_mean_fitted:
            continue
        value = simulated_value(statistics, limit)
        if (not each_held) if limit.statistic == "each" else value > MARGIN * limit.seconds:
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
    """Return the estimate with the fewest replicas that keep the limits; None if none do.

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

    def held_with(replicas: int) -> ServingEstimate | None:
        layout = replace(found.layout, replicas=replicas)
        return _if_held(problem, found if layout == found.layout else estimate_at(problem, layout))

    return _first_held(counts, held_with)


def _first_held(
    counts: list[int], held_with: Callable[[int], ServingEstimate | None]
) -> ServingEstimate | None:
    """Return the result of ``held_with`` for the smallest of ``counts`` for which it is not None.

    More replicas never make a service slower, so that the counts are bisected after steps that
    double: the answer is usually close to the first one.
    """
    low, step, best = -1, 1, None
    high = 0
    while True:
        best = held_with(counts[high])
        if best is not None or high == len(counts) - 1:
            break
        low, high, step = high, min(high + step, len(counts) - 1), 2 * step
    if best is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        fewer = held_with(counts[middle])
        if fewer is None:
            low = middle
        else:
            high, best = middle, fewer
    return best


def _with_less_load(
    problem: ServingProblem, found: ServingEstimate, most: float
) -> ServingEstimate | None:
    """Return the estimate at the largest load that keeps the limits; None if no load does.

    Loads at which the objective value would exceed ``most`` are not tried.
    """
    largest = found.solved_request_rate or 0.0
    # The cost of a token and the time per token of all replicas are inversely proportional to the
    # load. Numbers of GPUs do not depend on it.
    least = 0.0 if problem.minimizes_gpus else objective_value(problem, found)[0] / most

    def held_at(rate: float) -> ServingEstimate | None:
        return _if_held(problem, estimate_at(problem, found.layout, rate))

    if least and held_at(largest * least) is None:
        return None
    high = largest
    for share in (*(one for one in RATES if one > least), *((least,) if least else ())):
        low = largest * share
        best = held_at(low)
        if best is not None:
            break
        high = low
    else:
        return None
    for _ in range(RATE_ROUNDS if low < largest else 0):
        middle = math.sqrt(low * high)
        more = held_at(middle)
        if more is None:
            high = middle
        else:
            low, best = middle, more
    return best


def _if_held(problem: ServingProblem, found: ServingEstimate) -> ServingEstimate | None:
    """Return the estimate with its simulation; None if the simulation misses a limit."""
    simulated = with_statistics(problem, found)
    return None if missed_in_simulation(problem, simulated) else simulated
