"""Valid values of a field, and their text for the help and the fix of a diagnostic."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def filter_valid(values: Iterable[int], is_valid: Callable[[int], bool]) -> list[int]:
    """Return the elements of ``values`` for which ``is_valid`` returns True, in the same order."""
    return [value for value in values if is_valid(value)]


def nearest_value(values: Iterable[int], to: int) -> int | None:
    """Return the element of ``values`` that is closest to ``to``; None if ``values`` is empty.

    If two elements are equally close, the larger one is returned.
    """
    return min(values, key=lambda value: (abs(value - to), -value), default=None)


def format_setting(path: str, value: int | None) -> str:
    """Return the text of a spec edit that sets ``path`` to ``value``, such as ``layout.tp: 8``.

    The text is empty if ``value`` is None.
    """
    return "" if value is None else f"{path}: {value}"


def compare_capabilities(found: tuple[int, int], least: tuple[int, int]) -> str:
    """Return the text ``compute capability 7.0 < 8.0`` for a GPU that has less than ``least``."""
    return f"compute capability {found[0]}.{found[1]} < {least[0]}.{least[1]}"


def nearest_multiples(value: int, step: int) -> tuple[int, int]:
    """Return (nearest multiple of ``step`` below ``value``, nearest multiple above ``value``).

    If ``value`` is a multiple itself, the pair contains ``value`` twice. If ``value`` is less than
    ``step``, the pair contains ``step`` twice.
    """
    below = max(step, value // step * step)
    return below, below if below >= value else below + step
