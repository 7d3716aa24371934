"""Time of the slowest of several prompts whose lengths differ."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from math import exp, inf
from statistics import NormalDist

from parc.compiler.cost.serving.lognormal_lengths import (
    lognormal_parameters,
    mean_square_length,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import Lengths

QUANTILES = 64
"""Points of the distribution of lengths in the numerical integration of the longest prompt."""


def slowest_moments(
    lengths: Lengths, prompts: int, most: float, quadratic: float
) -> tuple[float, float]:
    """Return the mean of the time of the slowest of ``prompts`` prompts, and of its square.

    The unit is the mean time of a prompt, of which the fraction ``quadratic`` is proportional to
    the square of the length. Lengths above ``most`` mean lengths count as ``most``: the rest of
    such a prompt runs in other steps.
    """
    first, second, third, fourth = _longest(lengths, prompts).mean_powers(most)
    mean_square = mean_square_length(lengths)
    # The time of a prompt of length l is linear x l + curved x l^2, whose mean is 1.
    linear, curved = 1 - quadratic, quadratic / mean_square
    mean = linear * first + curved * second
    square = linear * linear * second + curved * (2 * linear * third + curved * fourth)
    return mean, square


@frozen
class _LongestLengths:
    """Distribution of the longest of several lengths, in units of the mean length."""

    quantiles: tuple[float, ...]
    """``QUANTILES`` equally probable lengths, in ascending order."""
    power_sums: tuple[tuple[float, float, float, float], ...]
    """Sums of the first n quantiles and of their squares, cubes and fourth powers, for each n."""

    def mean_powers(self, most: float) -> tuple[float, float, float, float]:
        """Return the means of the powers 1 to 4 of the length, where longer ones count ``most``."""
        # A search calls this for thousands of values of ``most``, so it has no loop over lengths.
        below = bisect_right(self.quantiles, most)
        first, second, third, fourth = self.power_sums[below]
        longer = QUANTILES - below
        if longer:
            square = most * most
            first += longer * most
            second += longer * square
            third += longer * square * most
            fourth += longer * square * square
        return first / QUANTILES, second / QUANTILES, third / QUANTILES, fourth / QUANTILES


@lru_cache(maxsize=2048)
def _longest(lengths: Lengths, prompts: int) -> _LongestLengths:
    """Return the distribution of the longest of ``prompts`` prompts."""
    location, sigma = lognormal_parameters(lengths.input_cv)
    longest = inf if lengths.input_most is None else lengths.input_most
    ratio = lengths.range_ratio
    normal = NormalDist()
    quantiles = []
    power_sums = [(0.0, 0.0, 0.0, 0.0)]
    for point in range(QUANTILES):
        # The longest of n lengths has the quantile u^(1/n) with a uniform u.
        quantile = ((point + 0.5) / QUANTILES) ** (1 / prompts)
        if sigma:
            length = min(exp(sigma * normal.inv_cdf(quantile) + location), longest)
        else:
            length = 1 + ratio * (2 * quantile - 1)
        quantiles.append(length)
        first, second, third, fourth = power_sums[-1]
        square = length * length
        power_sums.append(
            (first + length, second + square, third + square * length, fourth + square * square)
        )
    return _LongestLengths(tuple(quantiles), tuple(power_sums))
