"""Time that the prompts of requests take in engine steps.

If prompts and decoding requests share steps, a prompt adds to a step the difference between the
times with and without its tokens. If prompts run first, they have steps of their own, and the
prompts that wait when such a step begins run together. A step with n prompts takes c + n p'
seconds, so that each of them takes p' + c / n. How many run together follows from the
arrivals (``prompts_together.py``).
"""

from __future__ import annotations

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.lognormal_lengths import mean_square_length
from parc.compiler.cost.serving.micro_batches import latency_ratio
from parc.compiler.cost.serving.prompts_together import prompts_together
from parc.compiler.cost.serving.request_waits import RequestQueue, StepSeconds
from parc.compiler.cost.serving.step import (
    StepBatch,
    mean_visible_prompt_keys,
    prompt_attention_seconds,
    seconds_through_all_stages,
)
from parc.compiler.ir.serving import StepTerms, Traffic


def prompt_seconds(
    deployment: Deployment,
    traffic: Traffic,
    running: float,
    decode: StepTerms,
    queue: RequestQueue,
) -> StepSeconds:
    """Return the time that one request's prompt adds to steps, without the prompts of others.

    ``running`` requests decode on each data-parallel rank of the steps, which take ``decode``
    without prompts. If separate GPUs run the prompts, the result is the time of the prompt on these
    GPUs.
    """
    starts = prompts_per_step(deployment, traffic, running)
    total = decode.total_seconds
    if deployment.setup.prefill_apart or (queue.prefill_first and queue.ranks == 1):
        return _seconds_in_separate_steps(deployment, traffic, starts, total, queue)
    limit, computed = deployment.rank_setup.step_token_limit, traffic.computed_input_tokens
    context = traffic.mean_context_tokens
    span = _mean_computed_keys(deployment, traffic)
    # In engines that run prompts first, the decoding requests of the same rank wait.
    beside = 0.0 if queue.prefill_first else running
    # Prompts that start in the same step are processed together, up to the token limit of a step.
    chunk = min(max(starts, 1.0) * computed, limit)
    mixed = seconds_through_all_stages(deployment, StepBatch(beside, context, chunk, span))
    # Difference between a step with and without prompt tokens, for all chunks of one prompt.
    prefill = max(mixed.total_seconds - total, 0.0) * computed / chunk
    ratio = latency_ratio(deployment, traffic)
    if queue.ranks == 1 or deployment.layout.dp == 1:
        part, latency = _quadratic_fraction(deployment, traffic, prefill), prefill * ratio
        prefill *= _drain_factor(prefill, total, starts * queue.ranks, ratio)
        return StepSeconds(prefill, total, total, latency, quadratic=part)
    # Experts and the exchange of tokens take as long as for the mean of the tokens of all ranks.
    mean = min(max(starts, 1 / queue.ranks) * computed, limit)
    others = seconds_through_all_stages(deployment, StepBatch(running, context, mean, span))
    shared = (others.shared_seconds - decode.shared_seconds) * computed / (mean * queue.ranks)
    beside_shared = mixed.shared_seconds - decode.shared_seconds
    own = max(mixed.total_seconds - total - beside_shared, 0.0) * computed / chunk
    quadratic = _quadratic_fraction(deployment, traffic, own)
    prefill = own + shared
    longer = _drain_factor(prefill, total, starts * queue.ranks, ratio)
    return StepSeconds(prefill * longer, total, total, prefill * ratio, shared * longer, quadratic)


def _seconds_in_separate_steps(
    deployment: Deployment, traffic: Traffic, starts: float, total: float, queue: RequestQueue
) -> StepSeconds:
    """Return the same times if steps contain either prompts or decoding requests.

    ``starts`` prompts start per decode step, which takes ``total`` seconds.
    """
    limit, computed = deployment.rank_setup.step_token_limit, traffic.computed_input_tokens
    alone = _alone_seconds(deployment, traffic, 1.0)
    part = _quadratic_fraction(deployment, traffic, alone)
    ratio = latency_ratio(deployment, traffic)
    latency = alone * ratio
    if not queue.prefill_first or 2 * computed > limit:
        prefill = alone * _drain_factor(alone, total, starts, ratio)
        return StepSeconds(prefill, total, total, latency, quadratic=part, alone=alone)
    # Part of the time of a step that does not grow with the number of its prompts.
    fixed = max(2 * alone - _alone_seconds(deployment, traffic, 2.0), 0.0)
    together = prompts_together(queue, (total, fixed, alone - fixed), starts)
    together = min(together, limit / computed)
    prefill = alone - fixed + fixed / together
    return StepSeconds(
        prefill, total, total, latency, quadratic=part, alone=alone, together=together
    )


def _drain_factor(prefill: float, decode: float, starts: float, ratio: float) -> float:
    """Return the time that a prompt adds to steps until it left all stages, over ``prefill``.

    Decoding requests wait until the last chunk has passed the stages, unless another prompt starts
    before: its probability is the share of the time that prompts take. In a step, ``starts``
    prompts start on all ranks, which take up to ``ratio`` x ``prefill`` seconds each, and other
    work takes ``decode`` seconds.
    """
    alone = decode / (decode + starts * prefill * ratio)
    return 1 + (ratio - 1) * alone


def least_step_seconds(deployment: Deployment, traffic: Traffic, running: float) -> float:
    """Return a lower bound of the mean time between two decode steps of a request, in seconds.

    ``running`` requests decode on each data-parallel rank of the steps. The bound spreads the
    prompts evenly over ranks and steps: their time rises faster than their number of tokens, since
    a step takes the longer of its weight traffic and its FLOPs.
    """
    context = traffic.mean_context_tokens
    if deployment.setup.prefill_apart:
        return seconds_through_all_stages(deployment, StepBatch(running, context)).total_seconds
    tokens = prompts_per_step(deployment, traffic, running) * traffic.computed_input_tokens
    limit = deployment.rank_setup.step_token_limit
    span = _mean_computed_keys(deployment, traffic)
    batch = StepBatch(running, context, min(tokens, limit), span)
    seconds = seconds_through_all_stages(deployment, batch).total_seconds
    return seconds * max(tokens / limit, 1.0)


def prompts_per_step(deployment: Deployment, traffic: Traffic, running: float) -> float:
    """Return the number of prompts that start per decode step of ``running`` requests."""
    return running * deployment.setup.accepted_tokens / max(traffic.output_tokens, 1.0)


def _quadratic_fraction(deployment: Deployment, traffic: Traffic, prefill: float) -> float:
    """Return the fraction of a prompt's ``prefill`` seconds that grows with its squared length.

    It is the time of the attention core, and 0 if lengths hardly vary.
    """
    if not traffic.lengths.input_cv or not prefill:
        return 0.0
    span = _mean_computed_keys(deployment, traffic)
    seconds = prompt_attention_seconds(deployment, traffic.computed_input_tokens, span)
    return min(seconds / prefill, 1.0)


def _alone_seconds(deployment: Deployment, traffic: Traffic, prompts: float) -> float:
    """Return the seconds of the steps that contain only ``prompts`` prompts of mean length."""
    tokens = prompts * traffic.computed_input_tokens
    chunk = min(tokens, deployment.rank_setup.step_token_limit)
    batch = StepBatch(0.0, 0.0, chunk, _mean_computed_keys(deployment, traffic))
    # The time does not depend on the load, which a search varies.
    seconds = deployment.prompt_step_seconds.get(batch)
    if seconds is None:
        seconds = seconds_through_all_stages(deployment, batch).total_seconds
        deployment.prompt_step_seconds[batch] = seconds
    return seconds * tokens / chunk


def _mean_computed_keys(deployment: Deployment, traffic: Traffic) -> float:
    """Return the mean number of keys that the computed tokens of a prompt attend to."""
    # More tokens belong to long prompts than to short ones.
    square = mean_square_length(traffic.lengths)
    length, computed = square * traffic.input_tokens, square * traffic.computed_input_tokens
    keys = length * mean_visible_prompt_keys(deployment.model, length)
    # The last tokens are computed; they attend to the cached prefix too.
    cached = length - computed
    if cached:
        keys -= cached * mean_visible_prompt_keys(deployment.model, cached)
    return keys / computed
