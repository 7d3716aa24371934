"""Conversion of host names to Slurm's host list: ``r01n01 r01n02`` becomes ``r01n[01-02]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold_hosts(names: Iterable[str]) -> str:
    """Return the host names as one Slurm host list, without duplicates.

    Names that differ only in their last number are folded into one item with ranges of that number;
    zero padding is kept. Names without a number come first; the remaining names are sorted by the
    text around the number.
    """
    plain: set[str] = set()
    groups: dict[tuple[str, str], set[str]] = {}
    for name in names:
        prefix, digits, suffix = _split_at_last_number(name)
        if digits:
            groups.setdefault((prefix, suffix), set()).add(digits)
        else:
            plain.add(name)
    folded = [
        _fold_numbers(prefix, numbers, suffix)
        for (prefix, suffix), digits in sorted(groups.items())
        for numbers in _group_by_width(digits)
    ]
    return ",".join([*sorted(plain), *folded])


def _split_at_last_number(name: str) -> tuple[str, str, str]:
    """Return (prefix, last number, suffix) of a host name; the number is "" if there is none."""
    prefix = name.rstrip("0123456789")
    if len(prefix) < len(name):
        # Fast path: most host names end in a number.
        return prefix, name[len(prefix) :], ""
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2], match[3]) if match else (name, "", "")


def _group_by_width(digits: set[str]) -> Iterator[list[str]]:
    """Yield lists of numbers that can be in one bracket of a host list, such as ``[01-08]``.

    If any number is zero-padded, all numbers of a bracket must have the same width; otherwise one
    bracket can contain all numbers.
    """
    # Slurm expands [08-11] to numbers of equal width, but [8-11] to 8, 9, 10 and 11.
    if not any(text.startswith("0") and len(text) > 1 for text in digits):
        yield sorted(digits, key=int)
        return
    for width in sorted({len(text) for text in digits}):
        yield sorted(text for text in digits if len(text) == width)


def _fold_numbers(prefix: str, numbers: list[str], suffix: str) -> str:
    """Return one item of a host list, such as ``r01n[01-02]``, for all ``numbers``."""
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]}{suffix}"
    ranges = (
        first if first == last else f"{first}-{last}" for first, last in _consecutive_runs(numbers)
    )
    return f"{prefix}[{','.join(ranges)}]{suffix}"


def _consecutive_runs(numbers: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (first, last) of each run of consecutive numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if int(number) != int(last) + 1:
            yield first, last
            first = number
        last = number
    yield first, last
