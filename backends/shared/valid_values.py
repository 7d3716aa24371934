"""Legal values for the help of a diagnostic."""

from __future__ import annotations

from collections.abc import Callable, Iterable

MOST_SHOWN = 12


def legal(values: Iterable[int], holds: Callable[[int], bool]) -> list[int]:
    """Those of ``values`` that keep the rule, in their order."""
    return [value for value in values if holds(value)]


def listed(values: Iterable[int]) -> str:
    """``1, 2, 4, 8``; the middle of a long list is left out."""
    all_values = list(values)
    if not all_values:
        return "none"
    if len(all_values) > MOST_SHOWN:
        return ", ".join(map(str, all_values[: MOST_SHOWN - 1])) + f", ..., {all_values[-1]}"
    return ", ".join(map(str, all_values))


def nearest(values: Iterable[int], to: int) -> int | None:
    """The value closest to ``to``, the larger of two; None of none."""
    return min(values, key=lambda value: (abs(value - to), -value), default=None)


def pin(path: str, value: int | None) -> str:
    """The edit ``layout.tp: 8``; empty where there is no legal value."""
    return "" if value is None else f"{path}: {value}"


def divisors(number: int) -> list[int]:
    """All divisors of ``number``, ascending."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]


def around(value: int, step: int) -> tuple[int, int]:
    """The multiples of ``step`` below (at least one step) and above ``value``."""
    below = max(step, value // step * step)
    return below, below if below >= value else below + step
