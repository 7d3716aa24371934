"""TTFT, TPOT and throughput of a deployment under traffic: continuous batching in steady state.

A running request yields one token per step. In steady state each step processes B decoding requests
and, in chunks, the prompts of the B / output requests that start in it (Sarathi-Serve,
arXiv:2403.02310), so TPOT = decode step + B / output x the seconds that one prompt adds to steps. B
follows from Little's law and is bounded by the KV cache. TTFT is the time of a request's own
prompt, the delay before it (``request_waits.py``), and the wait for a slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.kv_transfer import transfer_seconds
from parc.compiler.cost.serving.mean_step import with_prompts
from parc.compiler.cost.serving.memory import (
    kv_bytes_per_token,
    request_cache_bytes,
    serving_memory,
)
from parc.compiler.cost.serving.prompt_seconds import prompt_seconds, step_token_limit
from parc.compiler.cost.serving.request_waits import (
    LEAST_STEP_PROMPTS,
    RequestQueue,
    StepSeconds,
    closed_loop_queue,
    poisson_queue,
    seconds_until_prompt_runs,
)
from parc.compiler.cost.serving.stages import fullest_stage_memory
from parc.compiler.cost.serving.step import StepBatch, seconds_through_all_stages
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


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Steady state of an engine with ``running`` decoding requests on each data-parallel rank."""

    running: float
    decode: StepTerms
    step_seconds: float
    """Mean duration of a step, including the prompts of other requests."""
    prefill_seconds: float
    """Seconds that the prompt of one request adds to the steps of other requests; in a decode pool,
    the time of the transfer of its KV cache if that is longer."""
    first_seconds: float
    """Seconds from admission to the first token: earlier prompts, the prompt of the request, one
    step."""
    request_seconds: float
    """Seconds from admission to the last token."""


def estimate_serving(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout, traffic: Traffic
) -> ServingEstimate:
    """Return the latency and throughput of ``model`` on ``cluster`` under ``traffic``."""
    return estimate_deployment(build_deployment(model, cluster, setup, layout), traffic)


def estimate_deployment(deployment: Deployment, traffic: Traffic) -> ServingEstimate:
    """Return the latency and throughput of ``deployment`` under ``traffic``."""
    layout, setup = deployment.layout, deployment.setup
    memory = layout_memory(deployment)
    slots = max_running_requests(deployment, memory, traffic)
    if slots < 1:
        return _infeasible_estimate(deployment, memory)
    # All replicas and data-parallel ranks get equal shares of the requests.
    ranks = busy = float(layout.dp * layout.replicas)
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


def decode_steps(setup: ServingSetup, traffic: Traffic) -> float:
    """Return the number of steps from the first to the last token of a request."""
    return max((traffic.output_tokens - 1) / setup.accepted_tokens, 0.0)


def layout_memory(deployment: Deployment) -> ServingMemory:
    """Return the memory of the fullest rank of the deployment."""
    budget = fullest_stage_memory if deployment.layout.stages else serving_memory
    return budget(deployment.model, deployment.cluster, deployment.setup, deployment.layout)


def max_running_requests(deployment: Deployment, memory: ServingMemory, traffic: Traffic) -> float:
    """Return the number of requests that one data-parallel rank can run at the same time.

    The number is limited by the cache and by the engine's maximum. It is 0 if the cache cannot
    store even one request.
    """
    engine, setup = deployment.engine, deployment.setup

    def cache_bytes_of(tokens: float) -> float:
        """Return the cache bytes of a request with ``tokens`` tokens."""
        return request_cache_bytes(deployment.model, deployment.layout, setup, tokens)

    if memory.kv_bytes < cache_bytes_of(traffic.input_tokens + traffic.output_tokens):
        return 0.0
    # Half of the output has been generated, unless the engine reserves all of it.
    mean = traffic.input_tokens + traffic.output_tokens / (
        1 if engine.scheduling.reserves_output else 2
    )
    return min(
        memory.kv_bytes / cache_bytes_of(mean), setup.max_running or engine.scheduling.max_running
    )


def _closed_loop_state(
    deployment: Deployment, traffic: Traffic, present: float, busy: float
) -> SteadyState:
    """Return the steady state in which each of ``busy`` ranks always has ``present`` requests.

    The ranks are the data-parallel ranks of one engine, which run their steps together. In vLLM, a
    rank without requests runs a dummy batch, which takes as long as a step but yields no tokens.
    """
    queue = closed_loop_queue(deployment.setup, traffic, busy, present)
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
    queue = poisson_queue(deployment.setup, traffic, rate)
    steps = decode_steps(deployment.setup, traffic)

    def missing_requests(running: float) -> float:
        """Return the number of decoding requests by Little's law, minus the assumed ``running``."""
        seconds = _steady_steps(deployment, traffic, running, queue)[2]
        return min(rate * steps * seconds.request_step, slots) - running

    running = _smallest_root(missing_requests, LEAST_RUNNING, slots)
    steady = steady_state(deployment, traffic, running, queue)
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


def steady_state(
    deployment: Deployment, traffic: Traffic, running: float, queue: RequestQueue
) -> SteadyState:
    """Return the steady state with ``running`` decoding requests per data-parallel rank.

    ``running`` is the mean over time. ``queue`` is the work ahead of a new request. The times are
    those that a request experiences: under Poisson arrivals, its steps contain itself and, on
    average, ``running`` other requests.
    """
    setup = deployment.setup
    queue, decode, seconds = _steady_steps(deployment, traffic, running, queue)
    steps, step = decode_steps(setup, traffic), seconds.request_step
    ratio = _prompt_latency_ratio(deployment, traffic)
    if seconds.alone and queue.prefill_first:
        first = seconds.alone * ratio
    else:  # each chunk runs in a decode step
        first = queue.chunks * decode.total_seconds + seconds.prefill * ratio
    transfer = transfer_seconds(deployment, traffic)
    # Prompts, or transfers of their caches, follow one another; decode pools compute one token.
    serial = max(seconds.prefill, transfer)
    seconds = replace(seconds, prefill=serial)
    first += transfer + seconds_until_prompt_runs(setup, deployment.model, queue, seconds)
    if traffic.host_hit:
        first += deployment.reload_seconds(reloaded_bytes(deployment, traffic))
    if not setup.prefill_apart:  # the prompts of all present requests take this long
        least = seconds.aligned(queue.ranks)
        if not queue.prefill_first:
            least += decode.total_seconds / queue.step_prompts
        first = max(first, queue.present * least - steps * step)
    return SteadyState(running, decode, step, serial, first, first + steps * step)


def _steady_steps(
    deployment: Deployment, traffic: Traffic, running: float, queue: RequestQueue
) -> tuple[RequestQueue, StepTerms, StepSeconds]:
    """Return queue and steps with ``running`` decoding requests (see ``steady_state``)."""
    setup, ranks = deployment.setup, deployment.layout.dp
    context = traffic.input_tokens + traffic.output_tokens / 2
    present = running if queue.rate is None else queue.others(running) + 1
    if queue.rate is not None:
        queue = replace(queue, busy=-math.expm1(-running * ranks))
    # In a decode pool, the transfer of a cache delays only its own rank.
    has_prompts = setup.pool != "decode" and not setup.prefill_apart
    if has_prompts and not queue.aligned_starts and (queue.rate is not None or ranks > 1):
        # Decoding requests use up a part of the tokens of a step, unless they wait.
        used = 0.0 if queue.prefill_first else present * (1 + setup.draft_tokens)
        left = (step_token_limit(deployment) - used) / traffic.computed_input_tokens
        queue = replace(queue, ranks=ranks, step_prompts=max(left, LEAST_STEP_PROMPTS))
    decode = seconds_through_all_stages(deployment, StepBatch(present, context))
    seconds = prompt_seconds(deployment, traffic, present, decode, queue)
    if setup.prefill_apart:
        return queue, decode, seconds
    steps = max(decode_steps(setup, traffic), 1.0)
    return queue, decode, with_prompts(queue, seconds, running, steps)


def reloaded_bytes(deployment: Deployment, traffic: Traffic) -> float:
    """Return the bytes of a mean prompt that one GPU loads from host memory.

    The GPUs of all stages load at the same time, and a request waits for the slowest of them.
    """
    tokens = traffic.input_tokens * traffic.host_hit
    return tokens * kv_bytes_per_token(deployment.model, deployment.layout, deployment.setup)


def _prompt_latency_ratio(deployment: Deployment, traffic: Traffic) -> float:
    """Return the latency of a prompt, divided by the time that it occupies one pipeline stage.

    The chunks of a prompt pass the ``pp`` stages one after the other, so that the ratio is (chunks
    + pp - 1) / chunks.
    """
    chunks = max(math.ceil(traffic.computed_input_tokens / step_token_limit(deployment)), 1)
    return (chunks + deployment.layout.pp - 1) / chunks


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
