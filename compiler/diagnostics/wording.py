"""Numbers and lists as text in messages: counts of things, and lists of valid values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

MOST_SHOWN = 12
SHORTEST_RANGE = 5
"""Smallest number of successive values that are written as a range."""


def format_count(count: int, word: str) -> str:
    """Return ``count`` and ``word`` as text, in singular or plural: ``1 host``, ``1,024 hosts``."""
    # All words that PARC counts form their plural with s.
    return f"{count:,} {word}" + ("" if count == 1 else "s")


_COUNTED = (
    "hosts|GPUs|ranks|nodes|racks|stages|layers|heads|experts|groups|tokens|sequences|samples|chunks"
    "|micro-batches|steps|requests|engines|replicas|files|NICs|rows|lines|columns|runs|domains"
    "|switches|processes|values|keys|candidates|layouts|slots|points|pods"
)
_ONE = (
    # Numbers such as 8.1 and 0-1, products, and names such as pp 1 are not counts of one thing.
    r"(?<![\w.,=*/%+-])(?<![=*/%+-] )(?<!\b[tpcedv]p )(?<!\bvpp )(?<!ZeRO )(?<!\bto )"
    rf"(of )?1 ({_COUNTED})(?![\w-])( are\b| have\b| do\b| exceed\b| need\b)?"
)
_VERBS = {" are": " is", " have": " has", " do": " does", " exceed": " exceeds", " need": " needs"}
_IRREGULAR = {"micro-batches": "micro-batch", "switches": "switch", "processes": "process"}


def singularize(text: str) -> str:
    """Return ``text`` with counts of one thing in singular: ``1 host is`` for ``1 hosts are``.

    The sink applies this to each finding, so that no message has to handle a count of one itself.
    """
    # Compiled on first use, because most runs report nothing.
    return re.sub(_ONE, _singular, text) if "1 " in text else text


def _singular(match: re.Match[str]) -> str:
    inner, word, verb = match[1] or "", match[2], match[3] or ""
    # In "groups of 1 ranks do not fit", the verb belongs to the groups.
    verb = verb if inner else _VERBS.get(verb, verb)
    return f"{inner}1 {_IRREGULAR.get(word, word[:-1])}{verb}"


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
