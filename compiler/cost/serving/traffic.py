"""TTFT, TPOT and throughput of a deployment under traffic: continuous batching in steady state.

The number of decoding requests follows from Little's law and is bounded by the KV cache. It
determines the step time and the time to the first token (``steady_state.py``); requests that find
no slot wait in addition.
"""

from __future__ import annotations

from collections.abc import Callable

from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.kv_transfer import transfer_seconds
from parc.compiler.cost.serving.micro_batches import cached_requests, with_micro_batches
from parc.compiler.cost.serving.request_waits import closed_loop_queue, poisson_queue
from parc.compiler.cost.serving.steady_state import (
    SteadyState,
    decode_steps,
    mean_step_seconds,
    steady_state,
)
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.serving import (
    ServingEstimate,
    ServingLayout,
    ServingMemory,
    ServingSetup,
    StepTerms,
    Traffic,
)

ROUNDS = 24
"""Maximum number of iterations to find the number of decoding requests."""
LEAST_RUNNING = 1e-3
"""Minimum number of decoding requests, averaged over time, for which an engine is evaluated."""
CLOSED_LOOP_TOLERANCE = 1e-3
"""Error of the number of decoding requests in a closed loop, divided by the number of requests."""
STEEPEST_SECANT = 0.5
"""Largest slope of a secant that is used to find the number of decoding requests in a closed loop.
A steeper one would end far outside of the two values that it connects."""
RUNNING_TOLERANCE = 1e-6
"""Relative error of the number of decoding requests under Poisson arrivals."""
OVERLOAD = 4.0
"""Upper limit of the requests in the system, divided by slots; it applies if the engine cannot
sustain the request rate."""


def estimate_serving(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout, traffic: Traffic
) -> ServingEstimate:
    """Return the latency and throughput of ``model`` on ``cluster`` under ``traffic``."""
    return estimate_deployment(build_deployment(model, cluster, setup, layout), traffic)


def estimate_deployment(deployment: Deployment, traffic: Traffic) -> ServingEstimate:
    """Return the latency and throughput of ``deployment`` under ``traffic``."""
    deployment = with_micro_batches(deployment, traffic)
    layout, setup, memory = deployment.layout, deployment.setup, deployment.memory
    slots = max_running_requests(deployment, traffic)
    if slots < 1:
        return _infeasible_estimate(deployment, memory)
    # All replicas and their ranks get equal shares of the requests.
    ranks = busy = float(deployment.ranks * layout.replicas)
    if traffic.request_rate is not None:
        steady, present = _open_arrival_state(
            deployment, traffic, traffic.request_rate / ranks, slots
        )
    else:
        busy = ranks if traffic.concurrency is None else min(ranks, traffic.concurrency)
        present = slots if traffic.concurrency is None else traffic.concurrency / busy
        steady = _closed_loop_state(
            deployment, traffic, min(present, slots), busy / layout.replicas
        )
    inside = min(present, slots)
    # Little's law: requests in service = rate x time in service.
    rate = inside / steady.request_seconds
    # A step yields several tokens per request if draft tokens are accepted.
    tpot = steady.step_seconds / setup.accepted_tokens
    return ServingEstimate(
        layout=layout,
        fits=True,
        ttft_seconds=steady.first_seconds + (present - inside) / rate,
        tpot_seconds=tpot,
        tokens_per_second=rate * traffic.output_tokens * busy,
        requests_per_second=rate * busy,
        running=steady.running * busy / layout.replicas,
        max_concurrency=slots * ranks,
        memory=memory,
        decode=steady.decode,
        prefill_seconds=steady.prefill_seconds,
        waiting=(present - inside) * busy,
        transfer_seconds=transfer_seconds(deployment, traffic),
    )


def max_running_requests(
    deployment: Deployment, traffic: Traffic, cache_bytes: float | None = None
) -> float:
    """Return the number of requests that one of ``deployment.ranks`` can run at the same time.

    The number is limited by the KV cache and by the engine's maximum. It is 0 if the cache of the
    engine cannot store even one request. ``cache_bytes`` is the size of the cache in bytes; None:
    that of ``deployment.memory``.
    """
    cached = cached_requests(deployment, traffic, cache_bytes)
    return min(cached / deployment.micro_batches, deployment.rank_setup.running_limit)


def _closed_loop_state(
    deployment: Deployment, traffic: Traffic, present: float, busy: float
) -> SteadyState:
    """Return the steady state in which each of ``busy`` ranks always has ``present`` requests.

    The ranks are the data-parallel ranks of one engine, which run their steps together. In vLLM, a
    rank without requests runs a dummy batch, which takes as long as a step but yields no tokens.
    """
    queue = closed_loop_queue(deployment.rank_setup, traffic, busy, present)
    running, before = present, (0.0, 0.0)
    for _ in range(ROUNDS + 1):
        steady = steady_state(deployment, traffic, running, queue)
        # Requests decode during the part of their time that follows the first token.
        target = present * (1 - steady.first_seconds / steady.request_seconds)
        if abs(target - running) < CLOSED_LOOP_TOLERANCE * present:
            break
        # The average of the old and the new value damps oscillations of the fixed point. The secant
        # through two values is close to the fixed point, unless it is almost parallel to y = x.
        share = 0.5
        if running != before[0] > 0:
            slope = (target - before[1]) / (running - before[0])
            share = 1 / (1 - slope) if slope < STEEPEST_SECANT else share
        before = running, target
        running = max(running + share * (target - running), LEAST_RUNNING)
    return steady


def _open_arrival_state(
    deployment: Deployment, traffic: Traffic, rate: float, slots: float
) -> tuple[SteadyState, float]:
    """Return (steady state, number of requests in the system) under Poisson arrivals.

    ``rate`` is the number of requests per second per data-parallel rank. The number of decoding
    requests follows from Little's law and is at most ``slots``.
    """
    queue = poisson_queue(deployment.rank_setup, traffic, rate)
    steps = decode_steps(deployment.setup, traffic)

    def missing_requests(running: float) -> float:
        """Return the number of decoding requests by Little's law, minus the assumed ``running``."""
        step = mean_step_seconds(deployment, traffic, running, queue)
        return min(rate * steps * step, slots) - running

    running = _smallest_root(missing_requests, LEAST_RUNNING, slots)
    steady = steady_state(deployment, traffic, running, queue)
    if rate > steady.most_rate:
        # Prompts arrive faster than steps have tokens for them, so that all slots fill up.
        full = _closed_loop_state(deployment, traffic, slots, deployment.ranks)
        return full, OVERLOAD * slots
    return steady, min(rate * steady.request_seconds, OVERLOAD * slots)


def _smallest_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the smallest argument between ``low`` and ``high`` at which ``function`` is zero.

    If there is none, the result is ``low`` for a function that is negative at ``low``, else
    ``high``.
    """
    # The secant through two points left of the smallest root of a convex function never passes that
    # root. Little's law is nearly convex, because steps grow longer with more requests and the
    # longer of two terms counts. If the secant passes the root, the interval is narrowed.
    before = function(low)
    if before <= 0:
        return low
    left, point = low, min(low + before, high)
    for _ in range(ROUNDS):
        value = function(point)
        if abs(value) <= RUNNING_TOLERANCE * point or (value > 0 and point >= high):
            break
        slope = (value - before) / (point - left)
        if value > 0:
            left, before = point, value
        else:
            high = point
        # If the function does not fall, the next candidate is the upper end.
        ahead = point - value / slope if slope < 0 else high
        point = ahead if left < ahead < high or value > 0 else (left + high) / 2
        point = min(point, high)
    return point


def _infeasible_estimate(deployment: Deployment, memory: ServingMemory) -> ServingEstimate:
    """Return the estimate of a deployment whose cache cannot store one request.

    The latencies are infinite and the throughput is 0.
    """
    forever = float("inf")
    return ServingEstimate(
        layout=deployment.layout,
        fits=False,
        ttft_seconds=forever,
        tpot_seconds=forever,
        tokens_per_second=0.0,
        requests_per_second=0.0,
        running=0.0,
        max_concurrency=0.0,
        memory=memory,
        decode=StepTerms(),
        prefill_seconds=forever,
    )
