"""Number of prompts that run together in an engine that runs prompts in steps of their own.

A step with n prompts takes c + n p' seconds. In a closed loop, those requests run together whose
predecessors ended in the same decode step. Under Poisson arrivals of rate r, a prompt step follows
a decode step of d seconds with the probability a = 1 - exp(-r d), and a prompt step with b = 1 -
exp(-r (c + n p')). There are k = a / (1 - b) prompt steps per decode step, and n = q / k for q
prompts per decode step.
"""

from __future__ import annotations

import math

from parc.compiler.cost.serving.request_waits import RequestQueue

BATCH_ROUNDS = 12
"""Maximum number of iterations to find the number of prompts that run together."""
BATCH_TOLERANCE = 1e-3
"""Error of this number."""


def prompts_together(
    queue: RequestQueue, seconds: tuple[float, float, float], starts: float
) -> float:
    """Return the mean number of prompts in a step that contains only prompts.

    ``starts`` is the number of prompts per decode step. ``seconds`` are the time of a decode step,
    and the time of a prompt step that does not and that does grow with the number of prompts.
    """
    if starts <= 0:
        return 1.0
    if queue.rate is None:
        return max(queue.together, min(-starts / math.expm1(-starts), queue.present))
    decode, fixed, each = seconds
    together = 1.0
    for _ in range(BATCH_ROUNDS):
        rate = starts / (decode + starts * (each + fixed / together))
        after_decode = -math.expm1(-rate * decode)
        no_prompt_after_prompts = math.exp(-rate * (fixed + together * each))
        found = max(starts * no_prompt_after_prompts / after_decode, 1.0)
        if abs(found - together) < BATCH_TOLERANCE:
            break
        together = (together + found) / 2
    return together
