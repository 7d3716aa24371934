"""Largest load of a deployment: the highest request rate whose mean latencies meet the limits."""

from __future__ import annotations

import math
from dataclasses import replace

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.request_waits import BUSIEST, poisson_queue
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
"""Fraction of the largest load that is returned. ``estimate_deployment`` solves Little's law
numerically for a given rate; its error must not push a latency above a limit."""


def estimate_largest_load(
    deployment: Deployment, traffic: Traffic, limits: tuple[float, float, float]
) -> ServingEstimate:
    """Return the estimate at the largest request rate whose latencies are within ``limits``.

    ``limits`` are the largest mean times in seconds: to the first token, per output token, and of a
    request. Arrivals are Poisson-distributed, and the lengths are those of ``traffic``. If even a
    single request misses a limit, the estimate is that of a rate close to 0, and misses it too.
    """
    offline = replace(traffic, concurrency=None, request_rate=None)
    ranks = deployment.layout.dp * deployment.layout.replicas
    setup, steps = deployment.setup, decode_steps(deployment.setup, offline)
    slots = max_running_requests(deployment, layout_memory(deployment), offline)
    if slots < 1:
        return estimate_deployment(deployment, offline)

    def rate_with(running: float) -> tuple[float, bool]:
        """Return (requests per second of a rank, True if their latencies are within the limits).

        ``running`` is the number of requests that decode. It determines the duration of a step, and
        Little's law then determines the rate.
        """
        unqueued = steady_state(deployment, traffic, running, poisson_queue(setup, traffic, 0.0))
        rate = (
            running / (steps * unqueued.step_seconds) if steps else running / unqueued.first_seconds
        )
        queue = poisson_queue(setup, traffic, rate)
        queued = steady_state(deployment, traffic, running, queue)
        is_within = (
            rate * queued.prefill_seconds < BUSIEST
            and rate * queued.request_seconds <= slots
            and queued.first_seconds <= limits[0]
            and queued.step_seconds / setup.accepted_tokens <= limits[1]
            and queued.request_seconds <= limits[2]
        )
        return rate, is_within

    low, high = LEAST_RUNNING, slots
    for _ in range(LOAD_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rate_with(middle)[1] else (low, middle)
    found = rate_with(low)[0] * ranks * LOAD_MARGIN
    estimate = estimate_deployment(deployment, replace(offline, request_rate=found))
    return replace(estimate, solved_request_rate=found)
