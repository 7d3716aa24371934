"""Valid values of a field, as the help and fix texts of a diagnostic show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

MOST_SHOWN = 12


def valid(values: Iterable[int], is_valid: Callable[[int], bool]) -> list[int]:
    """Return the ``values`` for which ``is_valid`` is true, in their order."""
    return [value for value in values if is_valid(value)]


def format_values(values: Iterable[int]) -> str:
    """Return ``1, 2, 4, 8``; long lists are shortened in the middle, empty ones read ``none``."""
    all_values = list(values)
    if not all_values:
        return "none"
    if len(all_values) > MOST_SHOWN:
        return ", ".join(map(str, all_values[: MOST_SHOWN - 1])) + f", ..., {all_values[-1]}"
    return ", ".join(map(str, all_values))


def nearest(values: Iterable[int], to: int) -> int | None:
    """Return the value closest to ``to`` (the larger one of a tie); None if there is no value."""
    return min(values, key=lambda value: (abs(value - to), -value), default=None)


def format_pin(path: str, value: int | None) -> str:
    """Return the edit ``layout.tp: 8``; empty if there is no valid value."""
    return "" if value is None else f"{path}: {value}"


def divisors(number: int) -> list[int]:
    """Return all divisors of ``number``, ascending."""
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]


def nearest_multiples(value: int, step: int) -> tuple[int, int]:
    """Return the multiples of ``step`` next to ``value``: below (at least ``step``) and above.

    Both are ``value`` if it is a multiple.
    """
    below = max(step, value // step * step)
    return below, below if below >= value else below + step
