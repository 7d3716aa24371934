"""Rule that ends a simulation as soon as its requests are certain to miss a limit."""

from __future__ import annotations

from collections.abc import Callable

from parc.compiler.cost.serving.simulation.scheduler import Request
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving_goals import LatencyLimit, LatencyName

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
ROUNDING = 1e-9
"""Relative error of sums and products of times that must not end a simulation."""


def request_latency(request: Request, latency: LatencyName) -> float:
    """Return a latency of a request that has ended, in seconds."""
    if latency == "tpot":
        return (request.finish - request.first) / (request.output - 1 or 1)
    return (request.first if latency == "ttft" else request.finish) - request.arrival


@frozen
class StopRule:
    """Limits on latencies; a simulation may stop when it is certain to miss one of them.

    The statistics of the requests until then miss the same limit: a percentile, a mean or a share
    that too many of all requests exceed is also exceeded among fewer requests.
    """

    limits: tuple[LatencyLimit, ...]
    goodput: float | None = None
    """Minimum share of requests within all limits on ``each`` request; None: no minimum."""

    def checker(self, requests: int) -> Callable[[Request], bool]:
        """Return a function that receives each of ``requests`` requests when it ends.

        It returns True as soon as a limit is certainly missed.
        """
        checks = [_checker_of(one, requests) for one in self.limits if one.statistic != "each"]
        each = [one for one in self.limits if one.statistic == "each"]
        if each and self.goodput is not None:
            checks.append(_goodput_checker(each, (1 - self.goodput) * requests))

        def is_missed(request: Request) -> bool:
            # A list, because each check must count every request.
            return any([check(request) for check in checks])

        return is_missed


def _checker_of(limit: LatencyLimit, requests: int) -> Callable[[Request], bool]:
    """Return the function that checks the limit on a mean or a percentile."""
    latency, seconds = limit.latency, limit.seconds * (1 + ROUNDING)
    is_mean = limit.statistic == "mean"
    if is_mean:
        most = seconds * requests
    else:
        # A percentile lies at or above the value at this position, so it exceeds the limit if all
        # values from there on do (see ``sample_distribution``).
        most = requests - int(PERCENTILES[limit.statistic] * (requests - 1)) - 0.5
    total = 0.0

    def is_missed(request: Request) -> bool:
        nonlocal total
        # Requests with a single token have no time per token; statistics leave them out.
        if latency != "tpot" or request.output > 1:
            value = request_latency(request, latency)
            total += value if is_mean else value > seconds
        return total > most

    return is_missed


def _goodput_checker(limits: list[LatencyLimit], most: float) -> Callable[[Request], bool]:
    """Return a function that checks whether more than ``most`` requests miss one of ``limits``."""
    misses = 0

    def is_missed(request: Request) -> bool:
        nonlocal misses
        misses += any(request_latency(request, one.latency) > one.seconds for one in limits)
        return misses > most * (1 + ROUNDING)

    return is_missed
