"""Largest load of a deployment: the highest request rate whose mean latencies meet the limits."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.micro_batches import with_micro_batches
from parc.compiler.cost.serving.prompt_seconds import least_step_seconds
from parc.compiler.cost.serving.request_waits import BUSIEST, poisson_queue
from parc.compiler.cost.serving.steady_state import (
    decode_steps,
    state_with_steps,
    steady_steps,
)
from parc.compiler.cost.serving.traffic import (
    LEAST_RUNNING,
    estimate_deployment,
    max_running_requests,
)
from parc.compiler.ir.serving import ServingEstimate, Traffic

LOAD_TOLERANCE = 2e-5
"""Relative error of the number of decoding requests at the largest load."""
LITTLE_ROUNDS = 4
"""Maximum number of loads below a least rate that are tried before the largest load is found."""
BOUND_ROUNDS = 3
"""Secants with which the number of decoding requests of ``bound_largest_rate`` is found."""
BOUND_TOLERANCE = 0.02
"""Relative error of the step time at which they end."""
LOAD_MARGINS = (0.999, 0.997, 0.99, 0.97, 0.9)
"""Fractions of the largest load, of which the first one that meets the limits is returned.
``estimate_deployment`` solves Little's law numerically for a given rate. Close to saturation, small
errors of the step time change the number of decoding requests, and so the latencies, by much
more."""


def estimate_largest_load(
    deployment: Deployment,
    traffic: Traffic,
    limits: tuple[float, float, float],
    least_rate: float = 0.0,
) -> ServingEstimate | None:
    """Return the estimate at the largest request rate whose latencies are within ``limits``.

    ``limits`` are the largest mean times in seconds: to the first token, per output token, and of a
    request. Arrivals are Poisson-distributed, and the lengths are those of ``traffic``. If even a
    single request misses a limit, the estimate is that of a rate close to 0, and misses it too. The
    result is None if the limits are met, but not at ``least_rate`` requests per second.
    """
    offline = replace(traffic, concurrency=None, request_rate=None)
    deployment = with_micro_batches(deployment, traffic)
    ranks = deployment.ranks * deployment.layout.replicas
    slots = max_running_requests(deployment, offline)
    if slots < 1:
        return estimate_deployment(deployment, offline)

    def rate_with(running: float) -> tuple[float, float]:
        return _rate_and_largest_ratio(deployment, offline, (*limits, slots), running)

    running = _largest_running(rate_with, slots, least_rate / ranks)
    if running is None:
        return None
    largest = rate_with(running)[0] * ranks
    later = max(offline.output_tokens - 1, 0.0)
    for margin in LOAD_MARGINS:
        rate = largest * margin
        found = estimate_deployment(deployment, replace(offline, request_rate=rate))
        seconds = found.ttft_seconds + later * found.tpot_seconds
        latencies = (found.ttft_seconds, found.tpot_seconds, seconds)
        if running == LEAST_RUNNING or all(map(operator.le, latencies, limits)):
            break
    return replace(found, solved_request_rate=rate)


def bound_largest_rate(
    deployment: Deployment, traffic: Traffic, step_limit: float = math.inf
) -> float:
    """Return an upper bound of the request rate of ``estimate_largest_load``, per second.

    ``step_limit`` is the largest mean time between two decode steps of a request in seconds. The
    bound follows from Little's law with ``least_step_seconds``, and contains no waiting times. It
    is 0 if even a single request misses the limit.
    """
    deployment = with_micro_batches(deployment, traffic)
    slots = max_running_requests(deployment, traffic)
    if slots < 1:
        return 0.0
    running, step = slots, least_step_seconds(deployment, traffic, slots)
    if step > step_limit:
        low, below = LEAST_RUNNING, least_step_seconds(deployment, traffic, LEAST_RUNNING)
        if below > step_limit:
            return 0.0
        for _ in range(BOUND_ROUNDS):
            point = low + (running - low) * (step_limit - below) / (step - below)
            found = least_step_seconds(deployment, traffic, point)
            if found <= step_limit:
                low, below = point, found
            else:
                running, step = point, found
            if step <= step_limit * (1 + BOUND_TOLERANCE):
                break
        step = step_limit
    steps = max(decode_steps(deployment.setup, traffic), 1.0)
    return running / (steps * step) * deployment.ranks * deployment.layout.replicas


def _rate_and_largest_ratio(
    deployment: Deployment,
    traffic: Traffic,
    limits: tuple[float, float, float, float],
    running: float,
) -> tuple[float, float]:
    """Return (requests per second of a rank, largest ratio of a latency or load to its limit).

    ``running`` is the number of requests that decode. It determines the duration of a step, and
    Little's law then determines the rate. ``limits`` are those of ``estimate_largest_load`` and the
    largest number of requests of a rank.
    """
    setup, steps = deployment.setup, decode_steps(deployment.setup, traffic)
    found = steady_steps(
        deployment, traffic, running, poisson_queue(deployment.rank_setup, traffic, 0.0)
    )
    if steps:
        rate = running / (steps * found.seconds.request_step)
    else:
        rate = running / state_with_steps(deployment, traffic, running, found).first_seconds
    # The steps do not depend on the rate.
    found = replace(found, queue=replace(found.queue, rate=rate))
    queued = state_with_steps(deployment, traffic, running, found)
    return rate, max(
        rate * queued.prefill_seconds / BUSIEST,
        rate / (queued.most_rate * BUSIEST),
        rate * queued.request_seconds / limits[3],
        queued.first_seconds / limits[0],
        queued.step_seconds / setup.accepted_tokens / limits[1],
        queued.request_seconds / limits[2],
    )


def _largest_running(
    rate_with: Callable[[float], tuple[float, float]], most: float, least_rate: float
) -> float | None:
    """Return the largest number of decoding requests, below ``most``, that meets all limits.

    If none does, the result is ``LEAST_RUNNING``. ``rate_with`` returns (request rate, largest
    ratio of a latency to its limit) for a number of decoding requests; both rise with it. The
    result is None if the limits are met, but only at rates below ``least_rate``.
    """
    # Regula falsi on the logarithms, in which latencies of queues are almost straight lines.
    low, high = math.log(LEAST_RUNNING), math.log(most)
    rate, ratio = rate_with(LEAST_RUNNING)
    below = math.log(ratio)
    if below > 0 or high <= low:
        return LEAST_RUNNING
    if _is_missed_below(rate_with, most, least_rate, rate):
        return None
    rate, ratio = rate_with(most)
    above = math.log(ratio)
    if above <= 0:
        return most
    shortest = LOAD_TOLERANCE / 2  # each point is this far from both ends, so that they close in
    widths, moved = [math.inf, math.inf], ""
    while high - low > LOAD_TOLERANCE:
        if rate < least_rate:
            return None
        widths.append(high - low)
        point = (low + high) / 2
        if widths[-1] < widths[-3] / 2:
            secant = low + (high - low) * below / (below - above)
            point = min(max(secant, low + shortest), high - shortest)
        point_rate, ratio = rate_with(math.exp(point))
        value = math.log(ratio)
        # Illinois: an end that stays twice gets half of its value, so that the secant passes the
        # root.
        if value <= 0:
            above /= 2 if moved == "low" else 1
            low, below, moved = point, value, "low"
        else:
            below /= 2 if moved == "high" else 1
            high, above, rate, moved = point, value, point_rate, "high"
    return math.exp(low)


def _is_missed_below(
    rate_with: Callable[[float], tuple[float, float]],
    most: float,
    least_rate: float,
    rate: float,
) -> bool:
    """Return True if a limit is certainly missed at a rate below ``least_rate``.

    ``rate_with`` and ``most`` are those of ``_largest_running``, and ``rate`` is the rate with
    ``LEAST_RUNNING`` requests.
    """
    # Little's law with the steps of fewer requests, which are shorter, gives fewer requests than
    # ``least_rate`` needs. Each round starts with the steps of the round before.
    running = LEAST_RUNNING
    for _ in range(LITTLE_ROUNDS):
        ahead = running * least_rate / rate
        if not running < ahead < most:
            break
        running = ahead
        rate, ratio = rate_with(running)
        if rate >= least_rate:
            break
        if ratio > 1:
            return True
    return False
