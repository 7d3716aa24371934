"""Mean time between two decode steps of a request, which contains the prompts of other requests."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from parc.compiler.cost.serving.request_waits import (
    RequestQueue,
    StepSeconds,
    steps_of_all_ranks,
)


def with_prompts(
    queue: RequestQueue, seconds: StepSeconds, running: float, steps: float
) -> StepSeconds:
    """Return the times with the mean step of a request, which contains prompts of others.

    ``running`` is the mean number of decoding requests of a rank over time. A request decodes in
    ``steps`` steps.
    """
    if queue.ranks == 1:
        prompts = queue.prompts_while_decoding(running) / steps * seconds.prefill
        step = seconds.decode + prompts
        if queue.rate is not None:
            step = _step_behind_own_prompt(queue, seconds, step, running, steps)
        return replace(seconds, step=step)
    starts = queue.prompts_of_all_ranks(running) / steps
    paused = 0.0
    if queue.prefill_first:
        paused = queue.chunks * queue.prompts_while_decoding(running) / steps
        starts /= 1 + paused
    prompts = steps_of_all_ranks(queue, seconds).added_seconds(seconds.decode, starts)
    prompts += queue.behind / steps * seconds.aligned(queue.ranks)
    return replace(seconds, step=seconds.decode + prompts, starts=starts, paused=paused)


def _step_behind_own_prompt(
    queue: RequestQueue, seconds: StepSeconds, step: float, running: float, steps: float
) -> float:
    """Return the mean step of a request, including the prompts that arrived during its own prompt.

    The step with the own prompt is b seconds longer than others (all of it, if prompts run first).
    Prompts that arrive in these seconds run before the first decode step. With the time X of all
    decode steps, the rate is ``running`` / X, so that X = X0 + p b running / X. X0 is the time
    without these prompts.
    """
    longer = seconds.alone
    if not queue.prefill_first:
        longer = queue.chunks * seconds.decode + seconds.prefill - step
    whole = steps * step
    added = 4 * seconds.prefill * running * max(longer, 0.0)
    return (whole + sqrt(whole * whole + added)) / 2 / steps
