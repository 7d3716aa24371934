"""Largest request rate whose simulated latencies meet the limits.

A simulation takes about 0.1 CPU seconds and yields the worst ratio of a latency to its limit. Near
the largest rate, the rate is almost a power of this ratio, so that few simulations suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from parc.compiler.ir import ServingEstimate
from parc.compiler.ir.frozen import frozen

Simulated = tuple[ServingEstimate | None, float]
"""(estimate that meets all limits or None, largest ratio of a simulated latency to its limit)"""

RATE_ROUNDS = 10
"""Maximum number of rates that are simulated in all samples."""
TARGET = 0.99
"""Ratio of the worst latency to its limit at the next rate that is simulated."""
CLOSE = 0.97
"""Ratio from which on the limits are met just so."""
CLOSE_RATES = 1.02
"""Ratio of a larger rate to one that meets the limits, below which the search ends."""
RISE = 1.5
"""Assumed power of the latencies by which the rate rises, as long as only one rate is known: steps
without prompts are up to twice as long with twice the requests."""
LARGEST_RISE = 8.0
"""Largest power that follows from two rates that meet the limits."""
LARGEST_FALL = 0.5
"""Smallest factor from a rate that misses a limit to the next one, if no rate meets the limits."""
LEAST_FALL = 0.97
"""Largest such factor; it is squared after every further miss."""


@frozen
class _Rate:
    """Request rate that was simulated."""

    per_second: float
    ratio: float
    """Largest ratio of a simulated latency to its limit."""


def find_largest_rate(
    simulate_at: Callable[[float, int], Simulated],
    bounds: tuple[float, float],
    samples: int,
    *,
    tries_least: bool = False,
) -> ServingEstimate | None:
    """Return the estimate at the largest request rate that meets the limits; None if none does.

    ``simulate_at`` receives requests per second and a number of samples. The rate is between both
    ``bounds``, and meets the limits in ``samples`` samples. With ``tries_least``, the search begins
    with the lower bound, and ends if it misses a limit; use this if most searches end there.
    """
    least, largest = bounds
    best: ServingEstimate | None = None
    lows: list[_Rate] = []
    high: _Rate | None = None
    repeats = 0  # number of rates in a row that meet the limits, or minus the number that miss one
    rate: float | None = largest
    if tries_least:
        # A single sample suffices here, because the other ones are needed only if all larger rates
        # miss a limit.
        within, ratio = simulate_at(least, 1)
        if within is None:
            return None
        lows.append(_Rate(least, ratio))
        rate = _next_higher_rate(lows, largest)
    for _ in range(RATE_ROUNDS):
        if rate is None:
            break
        within, ratio = simulate_at(rate, samples)
        if within is None:
            high = _Rate(rate, ratio)
            repeats = min(repeats, 0) - 1
        else:
            best = within
            lows.append(_Rate(rate, ratio))
            repeats = max(repeats, 0) + 1
        if high is None:
            rate = _next_higher_rate(lows, largest)
        elif lows:
            rate = _rate_between(lows[-1], high, is_bisected=abs(repeats) > 1)
        else:
            rate = _next_lower_rate(high, least, misses=-repeats)
    return simulate_at(least, samples)[0] if best is None else best


def _next_higher_rate(lows: Sequence[_Rate], largest: float) -> float | None:
    """Return the rate, up to ``largest``, at which the limits are expected to be met just so.

    ``lows`` meet the limits, in ascending order. The result is None if it would be hardly larger.
    """
    low, rise = lows[-1], RISE
    if low.per_second >= largest:
        return None
    if not low.ratio:
        return largest
    if len(lows) > 1 and 0 < lows[-2].ratio < low.ratio:
        rise = math.log(low.per_second / lows[-2].per_second)
        rise = min(rise / math.log(low.ratio / lows[-2].ratio), LARGEST_RISE)
    rate = min(low.per_second * math.pow(TARGET / low.ratio, rise), largest)
    return rate if rate >= low.per_second * CLOSE_RATES else None


def _rate_between(low: _Rate, high: _Rate, *, is_bisected: bool) -> float | None:
    """Return the rate at which the limits are expected to be met just so.

    ``low`` meets them, and ``high`` misses one. With ``is_bisected``, because the last two rates
    were on the same side, the result is in the middle. It is None if it would be hardly larger than
    ``low``.
    """
    width, part = high.per_second / low.per_second, 0.5
    if 0 < low.ratio < high.ratio and not is_bisected:
        part = math.log(TARGET / low.ratio) / math.log(high.ratio / low.ratio)
        part = min(max(part, 0.0 if low.ratio >= CLOSE else 0.1), 0.9)
    rate = low.per_second * math.pow(width, part)
    return rate if rate >= low.per_second * CLOSE_RATES else None


def _next_lower_rate(high: _Rate, least: float, misses: int) -> float | None:
    """Return a rate, down to ``least``, that is expected to meet the limits.

    ``high`` is the smallest of ``misses`` rates, all of which missed a limit. The result is None if
    it is ``least`` already.
    """
    most = max(math.pow(LEAST_FALL, 2 ** (misses - 1)), LARGEST_FALL)
    fall = math.pow(TARGET / high.ratio, RISE) if high.ratio else most
    rate = max(high.per_second * min(max(fall, LARGEST_FALL), most), least)
    return rate if rate < high.per_second else None
