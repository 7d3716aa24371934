"""Divisors of a number, to enumerate parallel sizes and to list valid values in findings."""

from __future__ import annotations

from functools import cache
from math import isqrt


@cache
def divisors(number: int, most: int | None = None) -> tuple[int, ...]:
    """Return the divisors of ``number`` that are at most ``most``, in ascending order.

    The result is empty for 0. The time is proportional to ``most`` or to the square root of
    ``number``, whichever is smaller.
    """
    root = isqrt(number)
    small = [n for n in range(1, min(root, root if most is None else most) + 1) if number % n == 0]
    large = [number // n for n in reversed(small) if n * n != number]
    return tuple(n for n in (*small, *large) if most is None or n <= most)
