"""A serving layout to what users would see: replicas, stages, times, and whether limits hold."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.serving.stages import stage_splits
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.ir import ServingEstimate, ServingLayout, ServingProblem
from parc.compiler.ir.problem import allowed
from parc.compiler.ir.serving import even_stages
from parc.compiler.topology.engine_hosts import replica_counts, service_hosts

TIE = 0.03
"""Predictions this close are ties; the simpler layout wins."""
SUSTAINED = 0.97
"""Share of the request rate that must be served."""


def price_service(problem: ServingProblem, layout: ServingLayout) -> ServingEstimate:
    """``layout`` with as many replicas as the hosts hold, or as few as keep the limits."""
    counts = _counts(problem, layout)
    if problem.goals.maximize != "fewest-gpus" and problem.pins.replicas is None:
        counts = _useful(problem, counts)
    found = _estimate(problem, layout, counts[-1])
    if problem.goals.maximize != "fewest-gpus" or missed(problem, found):
        return found
    low, high = 0, len(counts) - 1  # more replicas never hurt: bisect
    while low < high:
        middle = (low + high) // 2
        tried = _estimate(problem, layout, counts[middle])
        if missed(problem, tried):
            low = middle + 1
        else:
            high, found = middle, tried
    return found


def _counts(problem: ServingProblem, layout: ServingLayout) -> tuple[int, ...]:
    """Numbers of replicas to choose from, ascending; the pinned one alone."""
    if problem.pins.replicas is not None:
        return (problem.pins.replicas,)
    cluster = problem.cluster
    counts = replica_counts(layout, cluster.node.gpus, cluster.nodes)
    return tuple(n for n in counts if allowed(problem.goals.limits, "replicas", n)) or (1,)


def _useful(problem: ServingProblem, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Without those that have more replicas than there are requests."""
    concurrency = problem.service.traffic.concurrency
    if concurrency is None:
        return counts
    return tuple(count for count in counts if count <= concurrency) or counts[:1]


def _estimate(problem: ServingProblem, layout: ServingLayout, replicas: int) -> ServingEstimate:
    service = problem.service
    stages = layout.stages
    if layout.pp > 1 and not stages:
        stages = even_stages(problem.model.layers, layout.pp)
    placed = replace(layout, replicas=replicas, stages=stages)
    return estimate_serving(problem.model, problem.cluster, service.setup, placed, service.traffic)


def missed(problem: ServingProblem, found: ServingEstimate) -> str | None:
    """The first limit that ``found`` misses, as the search counts it."""
    goals, rate = problem.goals, problem.service.traffic.request_rate
    if not found.fits:
        return "V01"
    if goals.ttft_seconds is not None and found.ttft_seconds > goals.ttft_seconds:
        return "ttft"
    if goals.tpot_seconds is not None and found.tpot_seconds > goals.tpot_seconds:
        return "tpot"
    if rate is not None and found.requests_per_second < SUSTAINED * rate:
        return "request_rate"
    return None


def best_stages(problem: ServingProblem, found: ServingEstimate) -> ServingEstimate:
    """``found`` with the split over stages that serves best, the engine's own where it ties.

    More cache in the fullest stage lets more requests run; a longer stage slows every step.
    """
    layout = found.layout
    if layout.pp == 1 or problem.pins.stages is not None:
        return found
    splits = stage_splits(problem.model.layers, layout.pp)
    tried = [_estimate(problem, replace(layout, stages=split), layout.replicas) for split in splits]
    best = min(tried, key=lambda one: scores(problem, one))
    first = tried[0]
    slack = scores(problem, best)[0] * (1 + TIE)
    return first if first.fits and scores(problem, first)[0] <= slack else best


def scores(problem: ServingProblem, found: ServingEstimate) -> tuple[float, float]:
    """What to make small, and what decides among equals."""
    if not found.fits:
        return float("inf"), float("inf")
    traffic, goal = problem.service.traffic, problem.goals.maximize
    later = max(traffic.output_tokens - 1, 0.0)
    latency = found.ttft_seconds + later * found.tpot_seconds
    speed = 1 / found.tokens_per_second
    if goal == "fewest-gpus":
        return _occupied(problem, found.layout), latency if traffic.request_rate else speed
    if goal == "latency" or traffic.request_rate is not None:
        return latency, latency
    return speed, speed


def _occupied(problem: ServingProblem, layout: ServingLayout) -> float:
    """GPUs that nobody else can use: all of a host's where the service takes several hosts."""
    gpus = problem.cluster.node.gpus
    hosts = service_hosts(layout, gpus) or 1
    return float(layout.gpus if hosts == 1 else hosts * gpus)


def ranked(problem: ServingProblem, kept: list[ServingEstimate]) -> list[ServingEstimate]:
    """By score; those within TIE of the best come first, the simplest of them ahead.

    Simple: few axes in use, then few stages, few ranks that wait for one another, few replicas,
    and the smaller degrees.
    """
    ordered = sorted(kept, key=lambda found: (scores(problem, found), _effort(found)))
    if not ordered:
        return []
    primary, secondary = scores(problem, ordered[0])
    slack = 1.0 if problem.goals.maximize == "fewest-gpus" else 1 + TIE

    def tied(found: ServingEstimate) -> bool:
        first, second = scores(problem, found)
        return first <= primary * slack and second <= secondary * (1 + TIE)

    ties = sorted((found for found in ordered if tied(found)), key=_effort)
    return ties + [found for found in ordered if not tied(found)]


def _effort(found: ServingEstimate) -> tuple[int, ...]:
    layout = found.layout
    degrees = (layout.tp, layout.pp, layout.dp, layout.ep, layout.pcp, layout.dcp)
    axes = sum(degree > 1 for degree in degrees)
    waiting = layout.tp * layout.pcp * layout.dp
    return (axes, layout.pp, waiting, layout.replicas, layout.tp, layout.ep, layout.dcp)
