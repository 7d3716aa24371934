"""Degrees that a rule leaves, for the help of a finding."""

from __future__ import annotations

from collections.abc import Callable

MOST = 64
"""Larger degrees are not listed."""


def divisors(number: int, most: int = MOST) -> list[int]:
    """Divisors of ``number``, ascending, up to ``most``."""
    return [degree for degree in range(1, min(number, most) + 1) if number % degree == 0]


def kept(legal: Callable[[int], bool], candidates: list[int]) -> str:
    """Those of ``candidates`` that are legal, as text."""
    return ", ".join(str(degree) for degree in candidates if legal(degree)) or "none"


def nearest(legal: Callable[[int], bool], candidates: list[int], asked: int) -> int:
    """The largest legal degree up to ``asked``, else 1."""
    return max((one for one in candidates if one <= asked and legal(one)), default=1)
