"""Lognormal prompt lengths that the maximum length of a request limits.

Engines reject longer requests, so longer lengths count as the largest one. Lengths are in units of
the mean of the spec, which is the mean without the limit.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, log, sqrt
from statistics import NormalDist

from parc.compiler.ir.serving import Lengths

_NORMAL = NormalDist()


def lognormal_parameters(variation: float) -> tuple[float, float]:
    """Return the mean and the standard deviation of the logarithm of a length without a limit.

    ``variation`` is the coefficient of variation.
    """
    variance = log(1 + variation * variation)
    return -variance / 2, sqrt(variance)


@lru_cache(maxsize=256)
def mean_square_length(lengths: Lengths) -> float:
    """Return the mean square of the prompt lengths, divided by the squared mean of the spec."""
    if not lengths.input_cv:
        # The variance of a uniform distribution is the square of its half width, divided by 3.
        return 1 + lengths.range_ratio**2 / 3
    if lengths.input_most is None:
        return 1 + lengths.input_cv**2
    location, sigma = lognormal_parameters(lengths.input_cv)
    return _mean_square(location, sigma, lengths.input_most)


def _mean_square(location: float, sigma: float, most: float) -> float:
    """Return the mean square of lognormal lengths, where longer ones count as ``most``."""
    limit = (log(most) - location) / sigma
    below = exp(2 * location + 2 * sigma * sigma) * _NORMAL.cdf(limit - 2 * sigma)
    return below + most * most * (1 - _NORMAL.cdf(limit))
