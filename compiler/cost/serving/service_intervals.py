"""80 % intervals of the estimated latencies and of the throughput of a service.

The error of an estimate is log-normal. Its spread depends on what is known: published benchmarks of
the engine, or a calibration with measurements of the user. The spreads are measured on published
benchmarks whose source was left out of the fit (benchmarks/accuracy/serving/intervals.py, which
also counts how many measurements lie inside the intervals: docs/accuracy.md).
"""

from __future__ import annotations

from math import exp

from parc.compiler.ir.engine_constants import EstimateErrors
from parc.compiler.ir.serving import ServingEstimate, ServingIntervals

CALIBRATED_ERRORS = EstimateErrors(
    source="errors of other rows of a benchmark after a calibration with three of its rows",
    ttft=0.47,
    tpot=0.20,
    tokens_per_second=0.20,
)
"""Half widths of the intervals for a service with a calibration."""


def service_intervals(
    estimate: ServingEstimate, shipped: EstimateErrors, is_calibrated: bool, is_rate_given: bool
) -> ServingIntervals:
    """Return the 80 % intervals of ``estimate``.

    ``shipped`` are the errors of the engine with its shipped constants. A calibration never makes
    an interval wider. Under a given request rate the throughput is that rate, so that its interval
    has no width.
    """
    ttft, tpot, rate = shipped.ttft, shipped.tpot, shipped.tokens_per_second
    if is_calibrated:
        ttft = min(ttft, CALIBRATED_ERRORS.ttft)
        tpot = min(tpot, CALIBRATED_ERRORS.tpot)
        rate = min(rate, CALIBRATED_ERRORS.tokens_per_second)
    if is_rate_given:
        rate = 0.0
    return ServingIntervals(
        _interval(estimate.ttft_seconds, ttft),
        _interval(estimate.tpot_seconds, tpot),
        _interval(estimate.tokens_per_second, rate),
    )


def _interval(value: float, spread: float) -> tuple[float, float]:
    return value * exp(-spread), value * exp(spread)
