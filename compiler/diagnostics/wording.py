"""Numbers and lists as text in messages: counts of things, and lists of valid values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

MOST_SHOWN = 12
SHORTEST_RANGE = 5
"""Smallest number of successive values that are written as a range."""


def format_count(count: int, word: str) -> str:
    """Return ``count`` and ``word`` as text, in singular or plural: ``1 host``, ``1,024 hosts``."""
    # All words that PARC counts form their plural with s.
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def format_words(words: Iterable[str]) -> str:
    """Return the words separated by commas; "none" if there are none."""
    return ", ".join(words) or "none"


def format_values(values: Iterable[int]) -> str:
    """Return the numbers as text, such as ``1, 2, 4, 8`` or ``1 to 8``.

    A long list is shortened to its first numbers and its last one. An empty list becomes ``none``.
    """
    all_values = list(values)
    parts = list(_parts(all_values))
    if not parts:
        return "none"
    if len(parts) > MOST_SHOWN:
        return ", ".join(parts[: MOST_SHOWN - 1]) + f", ..., {all_values[-1]}"
    return ", ".join(parts)


def _parts(values: Sequence[int]) -> Iterator[str]:
    """Yield the numbers as text; a long run of successive numbers is one range."""
    for _, run in groupby(enumerate(values), key=lambda pair: pair[1] - pair[0]):
        numbers = [value for _, value in run]
        if len(numbers) >= SHORTEST_RANGE:
            yield f"{numbers[0]} to {numbers[-1]}"
        else:
            yield from map(str, numbers)


def describe_indivisible(count: int, what: str, divisor: str) -> str:
    """Return the sentence that ``divisor``, such as ``tp=6``, does not divide ``count``.

    ``what`` is a plural, such as ``attention heads``, or a part of the model with its article, such
    as ``the dense MLP``: ``count`` is then its width.
    """
    if what.startswith(("the ", "a ", "an ")):
        return f"the width of {what}, {count}, is not divisible by {divisor}"
    return f"{count} {what} are not divisible by {divisor}"


def describe_uncopied_heads(count: int, tp: int) -> str:
    """Return the sentence that ``tp`` ranks can neither split nor copy key-value heads evenly."""
    return f"{count} key-value heads are neither a multiple nor a divisor of tp={tp}"


def describe_cut_blocks(block: int, share: int, what: str, ranks: int) -> str:
    """Return the sentence that ``ranks`` cut blocks of weights that share a quantization scale."""
    return (
        f"{ranks} ranks cut the blocks of {block} weights that share a scale: each rank has "
        f"{share} of the width of {what}"
    )


def describe_missing_experts(ep: object) -> str:
    """Return the sentence that a model without experts cannot use expert parallelism."""
    return f"ep={ep} distributes experts, but the model has none"
