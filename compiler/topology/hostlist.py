"""Conversion of Slurm host lists, such as ``r[01-02]n[01-16],login1``, to host names and back.

As in Slurm, the first number of a range sets the number of digits (``[01-100]`` is 01 to 100),
several brackets are a product in which the last one varies fastest, and names keep the order of the
text. Stricter than Slurm: a name may contain only letters, digits, dot, dash and underscore,
because it is written into shell scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, product
from math import prod

MOST_SHOWN = 10**24
"""Largest number of hosts that an error message prints."""
MOST_HOSTS = 200_000
"""Limit on the names of one host list, so that a typing error cannot fill the memory."""
LONGEST_NAME = 253
"""Longest DNS name in characters (RFC 1035)."""
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9._,\[\] -]")
_MARK = re.compile(r"[\[\],]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
# At most 18 digits, so that a number stays within 64 bits.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBER = re.compile(r"([0-9]{1,18})")
# Names that become equal when all digits are replaced by 0 have the same form.
_DIGIT_TO_0 = str.maketrans("123456789", "000000000")

Part = str | list[str]
"""Literal text of a host list item, or all numbers of a bracket."""


class HostlistError(ValueError):
    """Error in a host list; ``column`` is the first wrong character, counted from 1."""

    def __init__(self, message: str, column: int, length: int = 1) -> None:
        """Store the message, the column of the error, and the number of invalid characters."""
        super().__init__(message)
        self.message = message
        self.column = column
        self.length = max(length, 1)


class TooManyHosts(HostlistError):
    """Error of a well-formed host list with more hosts than the limit."""


def expand_host_list(text: str, most: int = MOST_HOSTS) -> list[str]:
    """Return the host names of a host list, in the order of the text, with their zero padding.

    Raises:
        HostlistError: the text is malformed.
        TooManyHosts: the list has more than ``most`` names; raised before any name is built.
    """
    _check_characters(text)
    hosts: list[str] = []
    for column, item in _split_items(text):
        sizes = [_count_in_bracket(match, column) for match in _BRACKET.finditer(item)]
        # Count before building: a range of 18 digits would exhaust the memory.
        count = prod(sizes)
        if len(hosts) + count > most:
            # A product of many brackets can have more digits than Python prints.
            shown = min(len(hosts) + count, MOST_SHOWN)
            message = f"at least {shown} hosts; the limit is {most}"
            raise TooManyHosts(message, column, len(item))
        names = _expand_item(item, column)
        # Names of an item differ only in digits, so two of them represent all.
        _check_name(names[0], column, len(item))
        _check_name(max(names, key=len), column, len(item))
        hosts += names
    return hosts


def compress_hosts(names: Iterable[str]) -> str:
    """Return a short host list of the distinct ``names``, in natural order (n2 before n10).

    ``expand_host_list(compress_hosts(names))`` is ``sorted(set(names), key=natural_key)``.
    """
    return compress_hosts_in_order(natural_sort(set(names)))


def compress_hosts_in_order(names: Iterable[str]) -> str:
    """Return a short host list that expands to ``names`` in the given order."""
    items: list[tuple[str, ...]] = [tuple(_NUMBER.split(name)) for name in names]
    # Only names with the same number of numbers can differ in just one of them.
    alike = (list(group) for _, group in groupby(items, key=len))
    folded = (item for group in alike for item in _merge_equal_lengths(group))
    return ",".join("".join(item) for item in folded)


def natural_sort(names: Iterable[str]) -> list[str]:
    """Return ``names`` sorted in natural order: n2 before n10.

    Sorting is fast if all names have the same form, such as ``node0001``.
    """
    found = list(names)
    if len({name.translate(_DIGIT_TO_0) for name in found}) == 1:
        return sorted(found)  # numbers of equal width sort as text
    return sorted(found, key=natural_key)


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Return the sort key of a host name in natural order: n2 before n10.

    Names that differ only in zero padding are ordered as text.
    """
    parts: list[str | int] = list(_NUMBER.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts, name


def _check_characters(text: str) -> None:
    """Raise HostlistError if ``text`` contains a character that is invalid in host lists."""
    found = _INVALID_CHARACTER.search(text)
    if found:
        raise HostlistError(f"{found[0]!r} is not allowed in a host name", found.start() + 1)


def _split_items(text: str) -> Iterator[tuple[int, str]]:
    """Yield (column, item) for each item of a host list.

    Items are separated by commas. Commas inside brackets are part of an item.
    """
    start, opened = 0, 0
    for found in _MARK.finditer(text):
        index = found.start()
        if found[0] == "," and not opened:
            yield _strip_item(text, start, index)
            start = index + 1
        elif found[0] == "[":
            if opened:
                raise HostlistError("nested bracket", index + 1)
            opened = index + 1
        elif found[0] == "]":
            if not opened:
                raise HostlistError("closing bracket without an opening one", index + 1)
            opened = 0
    if opened:
        raise HostlistError("unclosed bracket", opened)
    yield _strip_item(text, start, len(text))


def _strip_item(text: str, start: int, end: int) -> tuple[int, str]:
    """Return (column, item), where the item is ``text[start:end]`` without surrounding spaces."""
    item = text[start:end].strip(" ")
    if not item:
        raise HostlistError("missing host name", min(start + 1, max(len(text), 1)))
    column = text.index(item[0], start) + 1
    if " " in item:
        raise HostlistError("space inside a host name", column + item.index(" "))
    return column, item


def _ranges_in_bracket(match: re.Match[str], column: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first number, last number, number of digits) of every range in a bracket."""
    at = column + match.start(1)
    for text in match[1].split(","):
        found = _RANGE.fullmatch(text)
        if not found:
            message = f"{text!r} is not a number or a range" if text else "empty range"
            raise HostlistError(message, at, len(text))
        low, high = found[1], found[2] or found[1]
        if int(high) < int(low):
            raise HostlistError(f"range {text} is descending", at, len(text))
        if high[0] == "0" and len(high) > len(low):
            raise HostlistError(
                f"zero padding: {high} has more digits than {low}, so it must not start with 0",
                at,
                len(text),
            )
        yield int(low), int(high), len(low)
        at += len(text) + 1


def _count_in_bracket(match: re.Match[str], column: int) -> int:
    return sum(high - low + 1 for low, high, _ in _ranges_in_bracket(match, column))


def _numbers_in_bracket(match: re.Match[str], column: int) -> list[str]:
    return [
        f"{number:0{width}d}"
        for low, high, width in _ranges_in_bracket(match, column)
        for number in range(low, high + 1)
    ]


def _expand_item(item: str, column: int) -> list[str]:
    parts: list[Part] = []
    end = 0
    for match in _BRACKET.finditer(item):
        parts += [item[end : match.start()], _numbers_in_bracket(match, column)]
        end = match.end()
    parts.append(item[end:])
    choices = [[part] if isinstance(part, str) else part for part in parts if part]
    return ["".join(choice) for choice in product(*choices)]


def _check_name(name: str, column: int, length: int) -> None:
    if not _NAME.fullmatch(name):
        raise HostlistError("a host name must start with a letter or a digit", column)
    if len(name) > LONGEST_NAME:
        message = f"the host name has {len(name)} characters; the limit is {LONGEST_NAME}"
        raise HostlistError(message, column, length)


def _merge_equal_lengths(items: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Merge neighboring names that differ in a single number into ranges.

    Each name is a tuple that alternates text and numbers. All tuples have the same length. Names
    that differ in the last number are merged first.
    """
    for index in range(len(items[0]) - 2, 0, -2):
        alike = groupby(items, key=partial(_without_number, index))
        items = [
            _merge_numbers([item[index] for item in group], rest, index) for rest, group in alike
        ]
    return items


def _without_number(index: int, item: tuple[str, ...]) -> tuple[str, ...]:
    return item[:index] + item[index + 1 :]


def _merge_numbers(numbers: list[str], rest: tuple[str, ...], index: int) -> tuple[str, ...]:
    text = numbers[0] if len(numbers) == 1 else f"[{','.join(_compress_numbers(numbers))}]"
    return (*rest[:index], text, *rest[index:])


def _compress_numbers(numbers: list[str]) -> Iterator[str]:
    """Yield the ranges of consecutive numbers: ``01, 02, 03, 07`` -> ``01-03``, ``07``.

    All numbers of a range are zero-padded to the number of digits of the first number.
    """
    first = last = numbers[0]
    for number in numbers[1:]:
        if number == str(int(last) + 1).zfill(len(first)):
            last = number
            continue
        yield _range_text(first, last)
        first = last = number
    yield _range_text(first, last)


def _range_text(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"
