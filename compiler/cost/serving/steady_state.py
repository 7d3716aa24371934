"""Steady state of a data-parallel rank: step time, prompts and latencies with B decoding requests.

A running request yields one token per step. In steady state each step processes B decoding requests
and, in chunks, the prompts of the B / output requests that start in it (Sarathi-Serve,
arXiv:2403.02310), so TPOT = decode step + B / output x the seconds that one prompt adds to steps.
The time to the first token is that of a request's own prompt and of the delay before it
(``request_waits.py``).
"""

from __future__ import annotations

from dataclasses import replace
from math import expm1, inf

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.kv_transfer import transfer_seconds
from parc.compiler.cost.serving.mean_step import with_prompts
from parc.compiler.cost.serving.memory import kv_bytes_per_token
from parc.compiler.cost.serving.prompt_seconds import prompt_seconds
from parc.compiler.cost.serving.request_waits import (
    LEAST_STEP_PROMPTS,
    RequestQueue,
    StepSeconds,
    seconds_until_prompt_runs,
)
from parc.compiler.cost.serving.step import StepBatch, seconds_through_all_stages
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServingSetup, StepTerms, Traffic


@frozen
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
    most_rate: float
    """Requests per second and rank whose prompts fit into the tokens of the steps; infinite if
    prompts have steps of their own, as many as they need."""


@frozen
class SteadySteps:
    """Steps of a steady state, apart from the time until a new request starts.

    Under Poisson arrivals, they do not depend on the rate of the queue.
    """

    queue: RequestQueue
    decode: StepTerms
    seconds: StepSeconds


def decode_steps(setup: ServingSetup, traffic: Traffic) -> float:
    """Return the number of steps from the first to the last token of a request."""
    return max((traffic.output_tokens - 1) / setup.accepted_tokens, 0.0)


def steady_state(
    deployment: Deployment, traffic: Traffic, running: float, queue: RequestQueue
) -> SteadyState:
    """Return the steady state with ``running`` decoding requests per data-parallel rank.

    ``running`` is the mean over time. ``queue`` is the work ahead of a new request. The times are
    those that a request experiences: under Poisson arrivals, its steps contain itself and, on
    average, ``running`` other requests.
    """
    found = steady_steps(deployment, traffic, running, queue)
    return state_with_steps(deployment, traffic, running, found)


def state_with_steps(
    deployment: Deployment, traffic: Traffic, running: float, found: SteadySteps
) -> SteadyState:
    """Return the steady state (``steady_state``) whose steps are ``found``."""
    setup, queue, decode, seconds = deployment.setup, found.queue, found.decode, found.seconds
    steps, step = decode_steps(setup, traffic), seconds.request_step
    first = seconds.latency
    if not (seconds.alone and queue.prefill_first):  # each chunk runs in a decode step
        first += queue.chunks * decode.total_seconds
    transfer = transfer_seconds(deployment, traffic)
    # Prompts, or transfers of their caches, follow one another; decode pools compute one token.
    serial = max(seconds.prefill, transfer)
    if serial > seconds.prefill:
        seconds = replace(seconds, prefill=serial)
    first += transfer + seconds_until_prompt_runs(setup, deployment.model, queue, seconds)
    if traffic.host_hit:
        first += deployment.reload_seconds(reloaded_bytes(deployment, traffic))
    if not setup.prefill_apart:  # the prompts of all present requests take this long
        least = seconds.aligned(queue.ranks)
        if not queue.prefill_first:
            least += decode.total_seconds / queue.step_prompts
        first = max(first, queue.present * least - steps * step)
    most = inf if queue.prefill_first else queue.step_prompts / seconds.step
    return SteadyState(running, decode, step, serial, first, first + steps * step, most)


def mean_step_seconds(
    deployment: Deployment, traffic: Traffic, running: float, queue: RequestQueue
) -> float:
    """Return the seconds of a mean step with ``running`` decoding requests (``steady_state``)."""
    return steady_steps(deployment, traffic, running, queue).seconds.request_step


def steady_steps(
    deployment: Deployment, traffic: Traffic, running: float, queue: RequestQueue
) -> SteadySteps:
    """Return the steps with ``running`` decoding requests (see ``steady_state``)."""
    setup, ranks = deployment.rank_setup, deployment.ranks
    context = traffic.mean_context_tokens
    present = running if queue.rate is None else queue.others(running) + 1
    busy = queue.busy if queue.rate is None else -expm1(-running * ranks)
    # In a decode pool, the transfer of a cache delays only its own rank.
    has_prompts = setup.pool != "decode" and not setup.prefill_apart
    if has_prompts:
        # Decoding requests use up a part of the tokens of a step, unless they wait.
        used = 0.0 if queue.prefill_first else present * (1 + setup.draft_tokens)
        left = (setup.step_token_limit - used) / traffic.computed_input_tokens
        most = max(left, LEAST_STEP_PROMPTS)
        ranks = 1 if queue.aligned_starts else ranks
        queue = replace(queue, busy=busy, ranks=ranks, step_prompts=most)
    elif busy != queue.busy:
        queue = replace(queue, busy=busy)
    decode = seconds_through_all_stages(deployment, StepBatch(present, context))
    seconds = prompt_seconds(deployment, traffic, present, decode, queue)
    if setup.prefill_apart:
        return SteadySteps(queue, decode, seconds)
    steps = max(decode_steps(setup, traffic), 1.0)
    return SteadySteps(queue, decode, with_prompts(queue, seconds, running, steps))


def reloaded_bytes(deployment: Deployment, traffic: Traffic) -> float:
    """Return the bytes of a mean prompt that one GPU loads from host memory.

    The GPUs of all stages load at the same time, and a request waits for the slowest of them.
    """
    tokens = traffic.input_tokens * traffic.host_hit
    return tokens * kv_bytes_per_token(deployment.model, deployment.layout, deployment.setup)
