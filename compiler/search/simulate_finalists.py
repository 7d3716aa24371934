"""Choice of the serving layouts that meet all latency limits of the spec in a simulation.

The search compares mean latencies, which closed-form formulas estimate quickly. With random
arrivals, latencies vary from request to request. The best layouts are therefore simulated, with
more replicas or less load than the formulas need, until they meet every limit of the spec.

The formulas can also estimate a throughput a few percent too high. Near saturation, this is enough
for a queue that keeps growing. For a request rate without limits, the best layout is therefore
simulated, and others only if its queue grows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from parc.compiler.cost.serving.simulation.simulate import Sampling
from parc.compiler.evaluate.evaluate_service import (
    SERVICE_TIE,
    allowed_replica_counts,
    estimate_at,
    is_load_searched,
    objective_value,
    rank_services,
    request_seconds,
    simulate_service,
    without_larger_counts,
)
from parc.compiler.evaluate.find_largest_rate import Simulated, find_largest_rate
from parc.compiler.evaluate.simulated_limits import (
    cannot_sustain,
    missed_in_simulation,
    ratio_to_limit,
    stop_rule,
)
from parc.compiler.ir import ServingEstimate, ServingProblem
from parc.compiler.ir.serving import ServiceStatistics

FINALISTS = 5
"""Number of best layouts that are simulated; one simulation takes about 0.1 CPU seconds."""
FASTEST = 3
"""Number of layouts with the shortest request times that are simulated if no finalist meets the
limits."""
SAMPLES = (0, 1, 2)
"""Seeds of the samples in which a deployment must meet the limits; plans show the first one. Near
saturation, queues differ so much between samples that a single one is often met by chance."""
LOAD_MARGIN = 1.02
"""Factor on a load that PARC determines, in the other samples: the limits must hold at slightly
more load, because the latencies of a busy service rise steeply."""
LARGEST_GROWTH = 1.5
"""Largest factor from a number of replicas that misses a limit to the next one that is tried. A
larger one saves little: simulations of deployments that miss a limit by far end early."""
LEAST_GROWTH = 1.02
"""Smallest such factor, before numbers of replicas in between are tried. Smaller steps would follow
the noise between simulations, as with ``MARGIN``."""
LEAST_SHARE = 0.06
"""Smallest request rate that is simulated, as a fraction of the largest rate that meets the limits
according to the closed-form formulas."""


def simulate_finalists(
    problem: ServingProblem,
    order: Sequence[ServingEstimate],
    most: float = math.inf,
    others: Callable[[], Sequence[ServingEstimate]] = tuple,
    seeds: Sequence[int] = SAMPLES,
) -> list[ServingEstimate]:
    """Return the estimates of ``order`` that meet all limits in the simulation, best first.

    A service whose queue keeps growing meets no limits, even if the spec sets none (see
    ``cannot_sustain``).

    ``order`` is sorted by ``rank_services``. Only the ``FINALISTS`` best estimates are simulated,
    and if all of them miss a limit, the ``FASTEST`` others with the shortest request times; the
    others include those of ``others``. The result may have less load or more replicas than
    ``order``. Estimates whose objective value exceeds ``most`` are left out. ``seeds`` are the
    samples that must meet the limits.
    """
    adjusted = adjust_to_limits(problem, order[:FINALISTS], most, list(seeds))
    if adjusted:
        return adjusted
    slower = (*order[FINALISTS:], *others())
    fastest = sorted(slower, key=lambda found: request_seconds(problem, found))[:FASTEST]
    return adjust_to_limits(problem, fastest, most, list(seeds))


def adjust_to_limits(
    problem: ServingProblem,
    order: Sequence[ServingEstimate],
    most: float,
    seeds: list[int],
) -> list[ServingEstimate]:
    """Return the estimates with the load or replicas that meet all limits, best first.

    An estimate is left out if it cannot be better than ``most`` or than the best adjusted one,
    because adjusting only makes estimates worse. ``seeds`` are those of ``SAMPLES`` in the order in
    which a load is simulated; a sample that misses a limit moves to the front.
    """
    adjusted: list[ServingEstimate] = []
    for found in order:
        if objective_value(problem, found)[0] > most:
            continue
        within = (
            _with_less_load(problem, found, most, seeds)
            if is_load_searched(problem)
            else _with_more_replicas(problem, found, most, list(seeds))
        )
        if within is not None:
            adjusted.append(within)
            most = min(most, objective_value(problem, within)[0])
    return rank_services(problem, adjusted)


def choose_sustained(
    problem: ServingProblem,
    order: list[ServingEstimate],
    others: Callable[[], Sequence[ServingEstimate]],
) -> list[ServingEstimate]:
    """Return ``order``, with estimates first whose simulation sustains the request rate.

    ``order`` is sorted by ``rank_services``; ``others`` returns further valid estimates. If no
    simulated service sustains the rate, one that serves the most of it is first.
    """
    if not order or problem.service.traffic.request_rate is None:
        return order
    first = with_statistics(problem, order[0])
    if not cannot_sustain(problem, first.simulated):
        return [first, *order[1:]]
    finalists = simulate_finalists(problem, order, others=others, seeds=SAMPLES[:1])
    return put_first(finalists or [_serving_most(problem, order[:FINALISTS])], order)


def put_first(
    finalists: list[ServingEstimate], order: list[ServingEstimate]
) -> list[ServingEstimate]:
    """Return ``finalists``, and then the estimates of ``order`` with other parallel sizes."""
    places = {replace(one.layout, replicas=1) for one in finalists}
    return [*finalists, *(one for one in order if replace(one.layout, replicas=1) not in places)]


def _serving_most(problem: ServingProblem, order: list[ServingEstimate]) -> ServingEstimate:
    """Return the best estimate of those that serve the most requests in the simulation.

    The estimates have the layouts of ``order`` with the largest number of replicas.
    """
    served: list[tuple[float, ServingEstimate]] = []
    for one in order:
        layout = replace(one.layout, replicas=allowed_replica_counts(problem, one.layout)[-1])
        found = with_statistics(problem, estimate_at(problem, layout))
        served.append((found.simulated.requests_per_second if found.simulated else 0.0, found))
    least = (1 - SERVICE_TIE) * max(rate for rate, _ in served)
    kept = [found for rate, found in served if rate >= least]
    return min(kept, key=lambda one: objective_value(problem, one))


def with_statistics(problem: ServingProblem, found: ServingEstimate) -> ServingEstimate:
    """Return the estimate with the statistics of its simulation."""
    simulated = simulate_service(problem, found.layout, found.solved_request_rate)
    return replace(found, simulated=simulated)


def _with_more_replicas(
    problem: ServingProblem, found: ServingEstimate, most: float, seeds: list[int]
) -> ServingEstimate | None:
    """Return the estimate with the fewest replicas that meet the limits; None if no number does.

    Numbers of replicas whose objective value would exceed ``most`` are not tried. A sample that
    misses a limit moves to the front of ``seeds``.
    """
    allowed = allowed_replica_counts(problem, found.layout)
    counts = [count for count in allowed if count >= found.layout.replicas]
    if problem.minimizes_gpus:
        compact = without_larger_counts(problem, found.layout, counts)
        counts = [count for count in compact if count * found.layout.engine_gpus <= most]
    else:
        counts = counts[:1]  # already the largest useful number
    counts = counts or [found.layout.replicas]

    def simulate_with(replicas: int, number: int) -> Simulated:
        layout = replace(found.layout, replicas=replicas)
        estimate = found if layout == found.layout else estimate_at(problem, layout)
        return _simulate_samples(problem, estimate, seeds, number)

    if most < math.inf and all(simulate_with(one, 1)[0] is None for one in (counts[0], counts[-1])):
        return None  # usually, a layout misses a limit even with all GPUs that ``most`` allows
    return _result_for_smallest_count(counts, simulate_with)


def worst_sample(problem: ServingProblem, found: ServingEstimate) -> ServingEstimate:
    """Return the estimate with the statistics of the sample that exceeds its limits the most.

    The samples are those in which deployments must meet the limits, but without an early end.
    """
    samples = [
        replace(found, simulated=simulate_service(problem, found.layout, rate, Sampling(seed)))
        for seed, rate in _sampled_rates(found, SAMPLES)
    ]
    return max(samples, key=lambda one: _worst_ratio(problem, one.simulated))


def _sampled_rates(
    found: ServingEstimate, seeds: Sequence[int]
) -> Iterator[tuple[int, float | None]]:
    """Yield (seed, request rate) of each sample; the rate is None if the spec sets the load."""
    for seed in seeds:
        rate = found.solved_request_rate
        yield seed, rate if rate is None or seed == SAMPLES[0] else rate * LOAD_MARGIN


def _worst_ratio(problem: ServingProblem, sample: ServiceStatistics | None) -> float:
    """Return the largest ratio of a simulated latency to its limit."""
    if sample is None:
        return 0.0
    stop = stop_rule(problem)
    ratios = [ratio_to_limit(sample, one, stop.goodput) for one in stop.limits]
    growth = 1 + sample.wait_growth if cannot_sustain(problem, sample) else 0.0
    return max(*ratios, growth, 0.0)


def _result_for_smallest_count(
    counts: Sequence[int], simulate_with: Callable[[int, int], Simulated]
) -> ServingEstimate | None:
    """Return the result of ``simulate_with`` for the smallest count for which it is not None.

    ``counts`` is in ascending order. ``simulate_with`` receives a count and the number of samples
    to simulate. More replicas never make a service slower, so that a count that meets the limits is
    the smallest one if the count before it does not. A single sample finds it, and the others
    confirm it; if one of them misses a limit, it finds the next count.
    """
    low = -1
    ratios: dict[int, float] = {}
    while low < len(counts) - 1:
        high = _smallest_in_one_sample(counts, simulate_with, low, ratios)
        if high is None:
            return None
        best, ratios[high] = simulate_with(counts[high], len(SAMPLES))
        if best is not None:
            return best
        low = high
    return None


def _smallest_in_one_sample(
    counts: Sequence[int],
    simulate_with: Callable[[int, int], Simulated],
    low: int,
    ratios: dict[int, float],
) -> int | None:
    """Return the position of the smallest count after ``low`` that meets the limits in one sample.

    The result is None if no count meets them. Each count to try follows from the ratios of the
    latencies to their limits at two other counts; these ratios are added to ``ratios``.
    """

    def is_within(position: int) -> bool:
        found, ratios[position] = simulate_with(counts[position], 1)
        return found is not None

    high, least_step = low + 1, 1
    while not is_within(high):
        if high == len(counts) - 1:
            return None
        # The ratio of a simulation that ended early is too small, and so is this target.
        growth = ratios[high]
        if low >= 0:
            growth = _count_at_limit(counts, ratios, low, high) / counts[high]
        target = counts[high] * max(min(growth, LARGEST_GROWTH), LEAST_GROWTH)
        ahead = bisect_left(counts, target)
        if ahead < high + least_step:
            ahead, least_step = high + least_step, 2 * least_step
        low, high = high, min(ahead, len(counts) - 1)
    repeated = 0  # number of times in a row that the same end of the interval has moved
    while high - low > 1:
        middle = (low + high) // 2
        if low >= 0 and abs(repeated) < 2:
            middle = bisect_left(counts, _count_at_limit(counts, ratios, low, high))
            middle = min(max(middle, low + 1), high - 1)
        if is_within(middle):
            high, repeated = middle, min(repeated, 0) - 1
        else:
            low, repeated = middle, max(repeated, 0) + 1
    return high


def _count_at_limit(counts: Sequence[int], ratios: dict[int, float], low: int, high: int) -> float:
    """Return the count at which the ratio of latency to limit is 1, as a power law of the count.

    ``ratios`` contains the ratios at the positions ``low`` and ``high`` of ``counts``. If the ratio
    does not fall to 1, the result is the count in the middle of both.
    """
    first, last = math.log(ratios[low] or 1.0), math.log(ratios[high] or 1.0)
    share = first / (first - last) if first > max(last, 0.0) else 0.5
    return counts[low] * math.pow(counts[high] / counts[low], share)


def _with_less_load(
    problem: ServingProblem, found: ServingEstimate, most: float, seeds: list[int]
) -> ServingEstimate | None:
    """Return the estimate at the largest load that meets the limits; None if no load does.

    Loads at which the objective value would exceed ``most`` are not tried.
    """
    largest = found.solved_request_rate or 0.0
    # The cost of a token and the time per token of all replicas are inversely proportional to the
    # load. Numbers of GPUs do not depend on it.
    share = 0.0 if problem.minimizes_gpus else objective_value(problem, found)[0] / most

    def simulate_at(rate: float, number: int) -> Simulated:
        estimate = estimate_at(problem, found.layout, rate)
        return _simulate_samples(problem, estimate, seeds, number)

    # A load that meets the limits must be better than others, or at least not close to 0.
    if share:
        least = largest * max(share, LEAST_SHARE)
        return find_largest_rate(simulate_at, (least, largest), len(seeds), tries_least=True)
    return find_largest_rate(simulate_at, (largest * LEAST_SHARE, largest), len(seeds))


def _simulate_samples(
    problem: ServingProblem, found: ServingEstimate, seeds: list[int], number: int
) -> Simulated:
    """Return the estimate with the statistics of the sample ``SAMPLES[0]``, and the worst ratio.

    The estimate is None if a sample misses a limit. The ratio is the largest one of a simulated
    latency to its limit. The first ``number`` of ``seeds`` are simulated until one misses a limit;
    this one moves to the front, because it is likely to miss the limits of similar deployments too.
    """
    stop = stop_rule(problem)
    adjusted, worst = found, 0.0
    if not stop.limits and problem.service.traffic.request_rate is None:
        return adjusted, worst  # no simulation can miss a limit
    for seed, rate in _sampled_rates(found, tuple(seeds[:number])):
        # Plans show the queues and the cache of the first sample only.
        is_first = seed == SAMPLES[0]
        sampling = Sampling(seed, records=is_first, stop=stop if stop.limits else None)
        sample = simulate_service(problem, found.layout, rate, sampling)
        simulated = replace(found, simulated=sample)
        worst = max(worst, _worst_ratio(problem, sample))
        if cannot_sustain(problem, sample) or missed_in_simulation(problem, simulated):
            seeds.remove(seed)
            seeds.insert(0, seed)
            return None, worst
        if is_first:
            adjusted = simulated
    return adjusted, worst
