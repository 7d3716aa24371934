"""Steady state of a data-parallel rank: step time, prompts and latencies with B decoding requests.

A running request yields one token per step. In steady state each step processes B decoding requests
and, in chunks, the prompts of the B / output requests that start in it (Sarathi-Serve,
arXiv:2403.02310), so TPOT = decode step + B / output x the seconds that one prompt adds to steps.
The time to the first token is that of a request's own prompt and of the delay before it
(``request_waits.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.kv_transfer import transfer_seconds
from parc.compiler.cost.serving.memory import kv_bytes_per_token
from parc.compiler.cost.serving.request_waits import (
    LEAST_STEP_PROMPTS,
    RequestQueue,
    StepSeconds,
    mean_square,
    seconds_until_prompt_runs,
    with_prompts,
)
from parc.compiler.cost.serving.step import StepBatch, engine_step_seconds, mean_visible_prompt_keys
from parc.compiler.ir.serving import ServingSetup, StepTerms, Traffic

PIPELINE_BALANCE = 1.1
"""Time of a pipeline step, divided by that of a step with equal micro-batches. Micro-batches differ
in prompts and contexts, and all of them wait for the slowest (Sarathi-Serve, section 3.3). The
number is an assumption; no measurement determines it."""


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


def decode_steps(setup: ServingSetup, traffic: Traffic) -> float:
    """Return the number of steps from the first to the last token of a request."""
    return max((traffic.output_tokens - 1) / setup.accepted_tokens, 0.0)


@dataclass(frozen=True, slots=True)
class BatchSeconds:
    """Times in seconds of steps with a number of decoding requests per data-parallel rank."""

    present: float
    """Number of decoding requests."""
    decode: StepTerms
    """Step without prompts."""
    prompt: tuple[float, float, float]
    """Result of ``_prefill_seconds``."""


def steady_state(
    deployment: Deployment,
    traffic: Traffic,
    running: float,
    queue: RequestQueue,
    batch: BatchSeconds | None = None,
) -> SteadyState:
    """Return the steady state with ``running`` decoding requests per data-parallel rank.

    ``running`` is the mean over time. ``queue`` is the work ahead of a new request. The times are
    those that a request experiences: under Poisson arrivals, its steps contain itself and, on
    average, ``running`` other requests. ``batch`` is the result of ``batch_seconds``, if known.
    """
    setup = deployment.setup
    queue, decode, seconds = _steady_steps(deployment, traffic, running, queue, batch)
    steps, step = decode_steps(setup, traffic), seconds.step
    first = decode.total_seconds + seconds.prefill * _prompt_latency_ratio(deployment, traffic)
    first += (queue.chunks - 1) * decode.total_seconds  # each chunk runs in a decode step
    transfer = transfer_seconds(deployment, traffic)
    # Prompts, or transfers of their caches, follow one another; decode pools compute one token.
    serial = max(seconds.prefill, transfer)
    if serial != seconds.prefill:
        seconds = replace(seconds, prefill=serial)
    first += transfer + seconds_until_prompt_runs(setup, deployment.model, queue, seconds)
    if traffic.host_hit:
        first += deployment.reload_seconds(reloaded_bytes(deployment, traffic))
    if not setup.prefill_apart:  # the prompts of all present requests take this long
        least = seconds.aligned(queue.ranks) + decode.total_seconds / queue.step_prompts
        first = max(first, queue.present * least - steps * step)
    return SteadyState(running, decode, step, serial, first, first + steps * step)


def mean_step_seconds(
    deployment: Deployment, traffic: Traffic, running: float, queue: RequestQueue
) -> float:
    """Return the seconds of a mean step with ``running`` decoding requests (``steady_state``)."""
    return _steady_steps(deployment, traffic, running, queue)[2].step


def _steady_steps(
    deployment: Deployment,
    traffic: Traffic,
    running: float,
    queue: RequestQueue,
    batch: BatchSeconds | None = None,
) -> tuple[RequestQueue, StepTerms, StepSeconds]:
    """Return queue and steps with ``running`` decoding requests (see ``steady_state``)."""
    setup = deployment.setup
    if batch is None:
        batch = batch_seconds(deployment, traffic, running, queue)
    # Probability that a request decodes on any rank of the engine.
    busy = queue.busy if queue.rate is None else -math.expm1(-running * deployment.layout.dp)
    ranks = _ranks_with_prompts(deployment, queue)
    if ranks is not None:
        # Decoding requests use up a part of the tokens of a step.
        limit = setup.max_batched_tokens or deployment.engine.scheduling.max_batched_tokens
        left = limit - batch.present * (1 + setup.draft_tokens)
        prompts = max(left / traffic.computed_input_tokens, LEAST_STEP_PROMPTS)
        queue = replace(queue, busy=busy, ranks=ranks, step_prompts=prompts)
    elif busy != queue.busy:
        queue = replace(queue, busy=busy)
    decode, parts = batch.decode, batch.prompt
    seconds = StepSeconds(parts[0], decode.total_seconds, decode.total_seconds, *parts[1:])
    if setup.prefill_apart:
        return queue, decode, seconds
    steps = max(decode_steps(setup, traffic), 1.0)
    return queue, decode, with_prompts(queue, seconds, running, steps)


def batch_seconds(
    deployment: Deployment, traffic: Traffic, running: float, queue: RequestQueue
) -> BatchSeconds:
    """Return the times of steps with ``running`` decoding requests per data-parallel rank.

    The result is the same for all request rates of a ``queue``.
    """
    context = traffic.input_tokens + traffic.output_tokens / 2
    present = running if queue.rate is None else queue.others(running) + 1
    decode = seconds_through_all_stages(deployment, StepBatch(present, context))
    ranks = _ranks_with_prompts(deployment, queue) or queue.ranks
    prompt = _prefill_seconds(deployment, traffic, present, decode, ranks)
    return BatchSeconds(present, decode, prompt)


def _ranks_with_prompts(deployment: Deployment, queue: RequestQueue) -> int | None:
    """Return the number of ranks that run their steps together and have different prompts.

    The result is None if the steps of all ranks contain equally many prompts or none.
    """
    setup, ranks = deployment.setup, deployment.layout.dp
    # In a decode pool, the transfer of a cache delays only its own rank.
    has_prompts = setup.pool != "decode" and not setup.prefill_apart
    if has_prompts and not queue.aligned_starts and (queue.rate is not None or ranks > 1):
        return ranks
    return None


def reloaded_bytes(deployment: Deployment, traffic: Traffic) -> float:
    """Return the bytes of a mean prompt that one GPU loads from host memory.

    The GPUs of all stages load at the same time, and a request waits for the slowest of them.
    """
    tokens = traffic.input_tokens * traffic.host_hit
    return tokens * kv_bytes_per_token(deployment.model, deployment.layout, deployment.setup)


def _prefill_seconds(
    deployment: Deployment, traffic: Traffic, running: float, decode: StepTerms, ranks: int
) -> tuple[float, float, float]:
    """Return the time in seconds that one request's prompt adds to the steps of other requests.

    The second number is the part of it in work that ``ranks`` data-parallel ranks share, and the
    third one the fraction of the rest in the attention core; both are 0 for a single rank. If
    separate GPUs run the prompts, the result is the time of the prompt on these GPUs. ``decode`` is
    the time of a step without prompts.
    """
    setup = deployment.setup
    computed = traffic.computed_input_tokens
    span = _mean_computed_keys(deployment, traffic)
    limit = setup.max_batched_tokens or deployment.engine.scheduling.max_batched_tokens
    if setup.prefill_apart:
        running, decode = 0.0, StepTerms()
    starts = running * setup.accepted_tokens / max(traffic.output_tokens, 1.0)
    # Prompts that start in the same step are processed together, up to the token limit of a step.
    chunk = min(max(starts, 1.0) * computed, limit)
    context = traffic.input_tokens + traffic.output_tokens / 2
    mixed = seconds_through_all_stages(deployment, StepBatch(running, context, chunk, span))
    # Difference between a step with and without prompt tokens, for all chunks of one prompt.
    prefill = (mixed.total_seconds - decode.total_seconds) * computed / chunk
    if ranks == 1:
        return prefill, 0.0, 0.0
    # Experts and the exchange of tokens take as long as for the mean of the tokens of all ranks.
    mean = min(max(starts, 1 / ranks) * computed, limit)
    others = seconds_through_all_stages(deployment, StepBatch(running, context, mean, span))
    shared = (others.shared_seconds - decode.shared_seconds) * computed / (mean * ranks)
    own = prefill - (mixed.shared_seconds - decode.shared_seconds) * computed / chunk
    quadratic = 0.0
    if traffic.lengths.input_cv:  # lengths of a uniform distribution differ little
        core = seconds_through_all_stages(deployment, StepBatch(running, context, chunk))
        quadratic = (mixed.attention - core.attention) * computed / chunk / own
    return own + shared, shared, quadratic


def _mean_computed_keys(deployment: Deployment, traffic: Traffic) -> float:
    """Return the mean number of keys that the computed tokens of a prompt attend to."""
    # More tokens belong to long prompts than to short ones.
    square = mean_square(traffic)
    length, computed = square * traffic.input_tokens, square * traffic.computed_input_tokens
    keys = length * mean_visible_prompt_keys(deployment.model, length)
    # The last tokens are computed; they attend to the cached prefix too.
    cached = length - computed
    if cached:
        keys -= cached * mean_visible_prompt_keys(deployment.model, cached)
    return keys / computed


def _prompt_latency_ratio(deployment: Deployment, traffic: Traffic) -> float:
    """Return the latency of a prompt, divided by the time that it occupies one pipeline stage.

    The chunks of a prompt pass the ``pp`` stages one after the other, so that the ratio is (chunks
    + pp - 1) / chunks.
    """
    limit = deployment.setup.max_batched_tokens or deployment.engine.scheduling.max_batched_tokens
    chunks = max(math.ceil(traffic.computed_input_tokens / limit), 1)
    return (chunks + deployment.layout.pp - 1) / chunks


def seconds_through_all_stages(deployment: Deployment, batch: StepBatch) -> StepTerms:
    """Return the time in seconds that a token needs to pass all pipeline stages, by term.

    Each stage works on 1/pp of the requests at a time. All stages are assumed to take as long as
    the last one, which has the output projection.
    """
    layout = deployment.layout
    if layout.pp == 1:
        return engine_step_seconds(deployment, batch)
    share = StepBatch(
        batch.decode / layout.pp, batch.context, batch.prefill / layout.pp, batch.span
    )
    terms = engine_step_seconds(deployment, share)
    nbytes = 2 * (share.decode + share.prefill) * deployment.model.hidden
    hop = deployment.links.message_seconds(nbytes / layout.pcp, layout.tp * layout.pcp)
    return terms.with_added_communication(hop).scaled(layout.pp * PIPELINE_BALANCE)
