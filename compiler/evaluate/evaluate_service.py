"""Estimate of a serving layout, with the best number of replicas and the best pipeline stages."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.largest_load import bound_largest_rate, estimate_largest_load
from parc.compiler.cost.serving.simulation.simulate import (
    ONE_SAMPLE,
    Sampling,
    simulate,
)
from parc.compiler.cost.serving.stages import stage_layers, stage_splits
from parc.compiler.cost.serving.traffic import estimate_deployment
from parc.compiler.evaluate.service_rules import exceeds_host_memory
from parc.compiler.ir import Cluster, Model, ServingEstimate, ServingLayout, ServingProblem
from parc.compiler.ir.problem import is_size_allowed
from parc.compiler.ir.serving import ServiceStatistics, ServingSetup, Traffic
from parc.compiler.ir.serving_goals import LatencyName
from parc.compiler.topology.arrange_hosts import (
    compact_replica_counts,
    replica_counts,
    service_hosts,
)

SERVICE_TIE = 0.03
"""Relative difference up to which two estimates count as equal, so that the simpler layout wins."""
WAITING = 1e-6
"""Number of waiting requests that counts as 0, because the estimate has rounding errors."""
SUSTAINED = 0.97
"""Fraction of the request rate in the spec that the estimated throughput must reach."""


def evaluate_service(
    problem: ServingProblem, layout: ServingLayout, most: float = math.inf
) -> ServingEstimate:
    """Return the estimate of ``layout`` with the best number of replicas.

    If GPUs are minimized, this is the smallest number of replicas that meets all limits. If neither
    the time to the first token nor that of a request is limited, no request may wait for space in
    the cache either. With other goals, it is the largest number that the hosts can run, up to the
    number of concurrent requests. If PARC searches for the load, the estimate is that of the
    largest load.

    ``most`` is an upper limit on the GPUs, if they are minimized. If the layout needs more than
    ``most``, the result has the largest number of replicas, not the best one.
    """
    counts = allowed_replica_counts(problem, layout)
    if problem.pins.replicas is None:
        counts = _without_idle_replicas(problem, counts)
    if problem.minimizes_gpus:
        counts = without_larger_counts(problem, layout, counts)
    found = _estimate_with_replicas(problem, layout, counts[-1])
    if not problem.minimizes_gpus or _needs_more_replicas(problem, found):
        return found

    def gpus_with(replicas: int) -> float:
        return _counted_gpus(problem, replace(layout, replicas=replicas))

    low, high = 0, len(counts) - 1
    if _counted_gpus(problem, found.layout) > most:
        few = counts[: bisect_right(counts, most, key=gpus_with)]
        fewer = _estimate_with_replicas(problem, layout, few[-1]) if few else None
        if fewer is None or _needs_more_replicas(problem, fewer):
            return found
        high, found = len(few) - 1, fewer
    # Bisection, because more replicas never make an estimate worse.
    while low < high:
        middle = (low + high) // 2
        fewer = _estimate_with_replicas(problem, layout, counts[middle])
        if _needs_more_replicas(problem, fewer):
            low = middle + 1
        else:
            high, found = middle, fewer
    return found


def _needs_more_replicas(problem: ServingProblem, found: ServingEstimate) -> bool:
    """Return True if the estimate misses a limit or keeps requests waiting."""
    return first_missed_limit(problem, found) is not None or _is_overloaded(problem, found)


def allowed_replica_counts(problem: ServingProblem, layout: ServingLayout) -> Sequence[int]:
    """Return the numbers of replicas to choose from, in ascending order.

    If the spec sets ``layout.replicas``, this number is the only choice.
    """
    if problem.pins.replicas is not None:
        return (problem.pins.replicas,)
    cluster = problem.cluster
    counts = replica_counts(layout, cluster.node.gpus, cluster.nodes)
    if problem.service.setup.host_cache_bytes:
        # Further replicas on a host must not exceed its memory (V47).
        tried = ((n, replace(layout, replicas=n)) for n in counts)
        counts = [n for n, one in tried if not exceeds_host_memory(problem, one)]
    if problem.goals.limits:
        counts = [n for n in counts if is_size_allowed(problem.goals.limits, "replicas", n)]
    return counts or (1,)


def without_larger_counts(
    problem: ServingProblem, layout: ServingLayout, counts: Sequence[int]
) -> Sequence[int]:
    """Return the ascending ``counts`` of replicas without those that a larger one beats.

    If the service occupies whole hosts, a larger number may need fewer of them.
    """
    if problem.reserved == "gpus":
        return counts
    return compact_replica_counts(layout, problem.cluster.node.gpus, counts)


def _without_idle_replicas(problem: ServingProblem, counts: Sequence[int]) -> Sequence[int]:
    """Return the numbers of replicas in ``counts`` up to the number of concurrent requests.

    If all numbers are larger, the result is the smallest one only.
    """
    concurrency = problem.service.traffic.concurrency
    if concurrency is None:
        return counts
    return counts[: bisect_right(counts, concurrency)] or counts[:1]


def evaluate_at_largest_load(
    problem: ServingProblem, layout: ServingLayout, most: float
) -> ServingEstimate | None:
    """Return the estimate of ``layout`` at the largest load within the latency limits.

    The result is None if the limits are met, but the objective value (``objective_value``) is above
    ``most`` at every load.
    """
    if problem.minimizes_gpus:
        return evaluate_service(problem, layout)
    complete = _with_most_replicas(problem, layout)
    return _estimate_largest_load(problem, complete, _load_objective(problem, complete) / most)


def bound_objective(problem: ServingProblem, layout: ServingLayout) -> float:
    """Return a lower bound of the value to minimize (``objective_value``) at the largest load.

    It is infinite if the layout does not fit into memory, or misses a limit even at a load close to
    0. GPUs must not be minimized.
    """
    goals, traffic = problem.goals, problem.service.traffic
    accepted = problem.service.setup.accepted_tokens
    limits = [] if goals.tpot_seconds is None else [goals.tpot_seconds * accepted]
    if goals.e2e_seconds is not None and traffic.output_tokens > 1:
        limits.append(goals.e2e_seconds * accepted / (traffic.output_tokens - 1))
    complete = _with_most_replicas(problem, layout)
    step_limit = min(limits, default=math.inf)
    rate = bound_largest_rate(_deployment(problem, complete), traffic, step_limit)
    return _load_objective(problem, complete) / rate if rate else math.inf


def _with_most_replicas(problem: ServingProblem, layout: ServingLayout) -> ServingLayout:
    """Return ``layout`` with the largest number of replicas that the spec and the hosts allow."""
    return replace(layout, replicas=allowed_replica_counts(problem, layout)[-1])


def _load_objective(problem: ServingProblem, layout: ServingLayout) -> float:
    """Return the value to minimize (``objective_value``), multiplied by the request rate.

    Both objectives with a searched load are inversely proportional to the tokens per second.
    """
    is_cost = problem.goals.maximize == "lowest-cost"
    gpus = _counted_gpus(problem, layout) if is_cost else 1.0
    return gpus / problem.service.traffic.output_tokens


def _estimate_with_replicas(
    problem: ServingProblem, layout: ServingLayout, replicas: int
) -> ServingEstimate:
    """Return the estimate of ``layout`` with ``replicas`` replicas."""
    complete = replace(layout, replicas=replicas)
    if not is_load_searched(problem):
        return estimate_deployment(_deployment(problem, complete), problem.service.traffic)
    found = _estimate_largest_load(problem, complete)
    assert found is not None  # only a least rate excludes a layout
    return found


def _estimate_largest_load(
    problem: ServingProblem, layout: ServingLayout, least_rate: float = 0.0
) -> ServingEstimate | None:
    """Return the result of ``estimate_largest_load`` for the limits of the spec."""
    goals = problem.goals
    limits = (goals.ttft_seconds, goals.tpot_seconds, goals.e2e_seconds)
    ttft, tpot, e2e = (float("inf") if limit is None else limit for limit in limits)
    deployment, traffic = _deployment(problem, layout), problem.service.traffic
    return estimate_largest_load(deployment, traffic, (ttft, tpot, e2e), least_rate)


def _deployment(problem: ServingProblem, layout: ServingLayout) -> Deployment:
    """Return the deployment of ``layout``, with the layers of its stages."""
    stages = layout.stages if layout.pp == 1 else stage_layers(problem, layout)
    complete = replace(layout, stages=stages)
    return build_deployment(problem.model, problem.cluster, problem.service.setup, complete)


def estimate_at(
    problem: ServingProblem, layout: ServingLayout, request_rate: float | None = None
) -> ServingEstimate:
    """Return the estimate of ``layout`` as it is, under the load of the spec.

    If the load is searched, ``request_rate`` is the load in requests per second.
    """
    service, traffic = problem.service, problem.service.traffic
    if request_rate is not None:
        traffic = replace(traffic, request_rate=request_rate)
    deployment = build_deployment(problem.model, problem.cluster, service.setup, layout)
    return replace(estimate_deployment(deployment, traffic), solved_request_rate=request_rate)


def simulate_service(
    problem: ServingProblem,
    layout: ServingLayout,
    request_rate: float | None,
    sampling: Sampling = ONE_SAMPLE,
) -> ServiceStatistics | None:
    """Return the simulated statistics of a service.

    ``request_rate`` is the rate that the search determined, in requests per second; None if the
    load is that of the spec. If ``sampling`` ends the simulation early, the statistics are those of
    the requests until then. The result is None if there is no load.
    """
    service, traffic = problem.service, problem.service.traffic
    if request_rate is not None:
        traffic = replace(traffic, request_rate=request_rate)
    if not traffic.is_load_given:
        return None
    # The names of hosts do not change the result, and comparing them in the cache is slow.
    cluster = replace(problem.cluster, racks=(), spare=(), wired_hosts=())
    each = tuple(
        (one.latency, one.seconds)
        for one in problem.goals.latency_limits
        if one.statistic == "each"
    )
    deployed = (problem.model, cluster, service.setup, layout)
    return _simulate(deployed, traffic, each, sampling)


@lru_cache(maxsize=64)
def _simulate(
    deployed: tuple[Model, Cluster, ServingSetup, ServingLayout],
    traffic: Traffic,
    each: tuple[tuple[LatencyName, float], ...],
    sampling: Sampling,
) -> ServiceStatistics | None:
    """Return the simulated statistics, cached because searches need the same ones repeatedly.

    ``each`` contains upper limits on the latencies of every request, in seconds.
    """
    return simulate(build_deployment(*deployed), traffic, sampling, dict(each))


def is_load_searched(problem: ServingProblem) -> bool:
    """Return True if the load is the largest one within the latency limits.

    This is the case if the spec has latency limits and no load. With the goal latency, the load is
    as many requests as fit in memory.
    """
    goals, traffic = problem.goals, problem.service.traffic
    return goals.has_latency_limit and not traffic.is_load_given and goals.maximize != "latency"


def first_missed_limit(problem: ServingProblem, found: ServingEstimate) -> str | None:
    """Return the first limit of the spec that the estimate misses; None if it meets all limits.

    The result is V01, the diagnostic for too little memory, or the name of a goal: ttft, tpot, e2e
    or request_rate.
    """
    goals, rate = problem.goals, problem.service.traffic.request_rate
    if not found.fits:
        return "V01"
    if goals.ttft_seconds is not None and found.ttft_seconds > goals.ttft_seconds:
        return "ttft"
    if goals.tpot_seconds is not None and found.tpot_seconds > goals.tpot_seconds:
        return "tpot"
    if goals.e2e_seconds is not None and request_seconds(problem, found) > goals.e2e_seconds:
        return "e2e"
    if rate is not None and found.requests_per_second < SUSTAINED * rate:
        return "request_rate"
    return None


def _is_overloaded(problem: ServingProblem, found: ServingEstimate) -> bool:
    """Return True if requests wait for space in the cache, and no limit bounds the wait."""
    goals = problem.goals
    limited = goals.ttft_seconds is not None or goals.e2e_seconds is not None
    return not limited and found.waiting > WAITING


def choose_best_stage_split(problem: ServingProblem, found: ServingEstimate) -> ServingEstimate:
    """Return an estimate like ``found``, but with the best split of layers over pipeline stages.

    The engine's default split is kept if it is at most 3 % worse than the best split.
    """
    # Fewer layers on the fullest stage leave more memory for the cache, so that more requests run;
    # but another stage is then longer and slows every step.
    layout = found.layout
    if layout.pp == 1 or problem.pins.stages is not None:
        return found
    # The engine's own split is the first one, so it wins ties below.
    extra = problem.service.setup.engine.sharding.extra_layers
    splits = stage_splits(problem.model.layers, layout.pp, extra)
    tried = [
        _estimate_with_replicas(problem, replace(layout, stages=split), layout.replicas)
        for split in splits
    ]
    best = min(tried, key=lambda one: objective_value(problem, one))
    first = tried[0]
    pairs = zip(objective_value(problem, first), objective_value(problem, best), strict=True)
    is_tied = all(mine <= other * (1 + SERVICE_TIE) for mine, other in pairs)
    return first if first.fits and is_tied else best


def request_seconds(problem: ServingProblem, found: ServingEstimate) -> float:
    """Return the mean time in seconds from the arrival of a request to its last token."""
    # The first output token is part of the time to first token.
    later = max(problem.service.traffic.output_tokens - 1, 0.0)
    return found.ttft_seconds + later * found.tpot_seconds


def objective_value(problem: ServingProblem, found: ServingEstimate) -> tuple[float, float]:
    """Return (value to minimize, tie-breaker) of an estimate for the goal of the spec.

    Both values are infinite if the layout does not fit into memory. If GPUs are minimized, a
    deployment that keeps requests waiting counts as larger than the cluster, and the one with the
    highest throughput wins.
    """
    if not found.fits:
        return float("inf"), float("inf")
    traffic, goal = problem.service.traffic, problem.goals.maximize
    latency = request_seconds(problem, found)
    seconds_per_token = 1 / found.tokens_per_second
    if problem.minimizes_gpus:
        if _is_overloaded(problem, found):
            return problem.cluster.gpus + 1.0, seconds_per_token
        second = latency if traffic.request_rate else seconds_per_token
        return _counted_gpus(problem, found.layout), second
    if problem.minimizes_latency:
        return latency, latency
    if goal == "lowest-cost":
        return _counted_gpus(problem, found.layout) * seconds_per_token, seconds_per_token
    return seconds_per_token, seconds_per_token


def _counted_gpus(problem: ServingProblem, layout: ServingLayout) -> float:
    """Return the number of GPUs that the search minimizes: those that other jobs cannot use.

    Of a single host, only the GPUs of the ranks count, although Slurm reserves all of them.
    Otherwise, a service with little load would get all GPUs of its host.
    """
    hosts = service_hosts(layout, problem.cluster.node.gpus) or 1
    if hosts == 1:
        return float(layout.gpus)
    return float(problem.occupied_gpus(hosts, layout.gpus))


def rank_services(problem: ServingProblem, kept: list[ServingEstimate]) -> list[ServingEstimate]:
    """Return the estimates sorted by ``objective_value``.

    Estimates within 3 % of the best come first, sorted by the simplicity of their layouts: fewer
    parallel axes in use, then fewer stages, fewer ranks that wait for each other in a step, fewer
    replicas, and smaller parallel sizes.
    """
    ordered = sorted(
        kept, key=lambda found: (objective_value(problem, found), _complexity_key(found))
    )
    if not ordered:
        return []
    primary, secondary = objective_value(problem, ordered[0])
    # A number of GPUs is exact, so only equal numbers are tied.
    slack = 1.0 if problem.minimizes_gpus else 1 + SERVICE_TIE

    def is_tied(found: ServingEstimate) -> bool:
        first, second = objective_value(problem, found)
        return first <= primary * slack and second <= secondary * (1 + SERVICE_TIE)

    ties = sorted((found for found in ordered if is_tied(found)), key=_complexity_key)
    return ties + [found for found in ordered if not is_tied(found)]


def _complexity_key(found: ServingEstimate) -> tuple[int, ...]:
    """Return the sort key for equally good estimates; simpler layouts have smaller keys."""
    layout = found.layout
    degrees = (layout.tp, layout.pp, layout.dp, layout.ep, layout.pcp, layout.dcp)
    axes = sum(degree > 1 for degree in degrees)
    waiting = layout.tp * layout.pcp * layout.dp
    return (axes, layout.pp, waiting, layout.replicas, layout.tp, layout.ep, layout.dcp)
