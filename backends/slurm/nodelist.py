"""Host names to a Slurm host list: ``r01n01 r01n02 r02n01`` -> ``r01n[01-02],r02n01``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def fold_hosts(names: Iterable[str]) -> str:
    """A host list of the same hosts, sorted by prefix, width and number.

    The last number of each name is folded; its zero padding is kept.
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            prefix, digits, suffix = match.groups()
            groups.setdefault((prefix, suffix, _width(digits)), []).append(int(digits))
    folded = [_fold(key, sorted(numbers)) for key, numbers in sorted(groups.items())]
    return ",".join(sorted(plain) + folded)


def _width(digits: str) -> int:
    """Digits that a number is padded to; 0 where it is not padded."""
    return len(digits) if digits.startswith("0") or len(digits) == 1 else -len(digits)


def _fold(key: tuple[str, str, int], numbers: list[int]) -> str:
    prefix, suffix, width = key
    ranges = [
        f"{first:0{abs(width)}d}" + (f"-{last:0{abs(width)}d}" if last > first else "")
        for first, last in _ranges(numbers)
    ]
    if len(numbers) == 1:
        return f"{prefix}{ranges[0]}{suffix}"
    return f"{prefix}[{','.join(ranges)}]{suffix}"


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers, as (first, last)."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last
