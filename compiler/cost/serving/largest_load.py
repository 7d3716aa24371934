"""Largest load of a deployment: the request rate at which its mean latencies reach their limits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.request_waits import BUSIEST, RequestQueue, poisson_queue
from parc.compiler.cost.serving.traffic import (
    LEAST_RUNNING,
    decode_steps,
    estimate_deployment,
    layout_memory,
    max_running_requests,
    steady_state,
)
from parc.compiler.ir.serving import ServingEstimate, Traffic

LOAD_ROUNDS = 20
"""Number of bisections to find the largest load: its error is below 2e-5, because the number of
decoding requests is between 1e-3 and about 1e5, and each bisection halves the logarithm."""
LOAD_MARGIN = 0.999
"""Fraction of the largest load that is reported. The estimate of a given load solves Little's law
with an error of its own, by which it must not miss a limit."""


def estimate_largest_load(
    deployment: Deployment, traffic: Traffic, limits: tuple[float, float, float]
) -> ServingEstimate:
    """Return the estimate at the largest request rate that keeps within ``limits``.

    ``limits`` are the largest mean times to the first token, per output token and of a request, in
    seconds.
    Arrivals are Poisson-distributed, and the lengths are those of ``traffic``. If even a single
    request misses a limit, the estimate is that of a rate close to 0, and misses it too.
    """
    offline = replace(traffic, concurrency=None, request_rate=None)
    ranks = deployment.layout.dp * deployment.layout.replicas
    setup, steps = deployment.setup, decode_steps(deployment.setup, offline)
    slots = max_running_requests(deployment, layout_memory(deployment), offline)
    if slots < 1:
        return estimate_deployment(deployment, offline)

    def rate_with(running: float) -> tuple[float, bool]:
        """Return (requests per second of a rank, True if they keep within the limits).

        ``running`` is the number of requests that decode. It gives the duration of a step, and
        Little's law then gives the rate.
        """
        alone = steady_state(deployment, traffic, running, lambda _: RequestQueue())
        rate = running / (steps * alone.step_seconds) if steps else running / alone.first_seconds
        queued = steady_state(deployment, traffic, running, partial(poisson_queue, rate))
        kept = (
            rate * queued.prefill_seconds < BUSIEST
            and rate * queued.request_seconds <= slots
            and queued.first_seconds <= limits[0]
            and queued.step_seconds / setup.accepted_tokens <= limits[1]
            and queued.request_seconds <= limits[2]
        )
        return rate, kept

    low, high = LEAST_RUNNING, slots
    for _ in range(LOAD_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rate_with(middle)[1] else (low, middle)
    found = rate_with(low)[0] * ranks * LOAD_MARGIN
    estimate = estimate_deployment(deployment, replace(offline, request_rate=found))
    return replace(estimate, solved_request_rate=found)
