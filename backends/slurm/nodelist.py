"""Conversion of host names to a Slurm host list: ``r01n01 r01n02`` becomes ``r01n[01-02]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold_hosts(names: Iterable[str]) -> str:
    """Return a host list of the given hosts, without duplicates.

    The last number of each name is folded, with its zero padding. Names without a number are
    first; the others are sorted by the text around the number.
    """
    plain: set[str] = set()
    groups: dict[tuple[str, str], set[str]] = {}
    for name in names:
        prefix, digits, suffix = _parts(name)
        if digits:
            groups.setdefault((prefix, suffix), set()).add(digits)
        else:
            plain.add(name)
    folded = [
        _fold(prefix, numbers, suffix)
        for (prefix, suffix), digits in sorted(groups.items())
        for numbers in _by_width(digits)
    ]
    return ",".join([*sorted(plain), *folded])


def _parts(name: str) -> tuple[str, str, str]:
    """Return the text before the last number, the number, and the text after it."""
    prefix = name.rstrip("0123456789")
    if len(prefix) < len(name):
        return prefix, name[len(prefix) :], ""
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[2], match[3]) if match else (name, "", "")


def _by_width(digits: set[str]) -> Iterator[list[str]]:
    """Yield numbers that one bracket can contain: of any width, unless some are zero-padded."""
    if not any(text.startswith("0") and len(text) > 1 for text in digits):
        yield sorted(digits, key=int)
        return
    for width in sorted({len(text) for text in digits}):
        yield sorted(text for text in digits if len(text) == width)


def _fold(prefix: str, numbers: list[str], suffix: str) -> str:
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]}{suffix}"
    ranges = (first if first == last else f"{first}-{last}" for first, last in _runs(numbers))
    return f"{prefix}[{','.join(ranges)}]{suffix}"


def _runs(numbers: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (first, last) of each run of consecutive numbers."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if int(number) != int(last) + 1:
            yield first, last
            first = number
        last = number
    yield first, last
