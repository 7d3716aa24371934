"""Orders worth pricing in full: boxes of node ranks, picked by what leaves one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from parc.compiler.placement.order.messages import Messages
from parc.compiler.placement.order.packing import levels, pack
from parc.compiler.placement.order.price import Question
from parc.compiler.placement.order.rank_boxes import Shape, sequence, shapes

BEAM = 6
"""Shapes that are kept from level to level."""
SAMPLES = 3
"""Boxes of one shape that are looked at: the first, the middle one, the last."""
STEPS = 400_000
"""Messages that are counted to judge the shapes of one level, about."""
FEWEST_SHAPES = 8


@dataclass(frozen=True, slots=True)
class Seed:
    """One order: nested boxes, and how they are laid into switches."""

    nested: tuple[Shape, ...]
    """By level of ``packing.levels``, the narrowest first."""
    place: tuple[int, ...]


def seeds(
    question: Question, digits: tuple[int, ...], messages: Sequence[Messages], by_bytes: bool
) -> Iterator[Seed]:
    """Orders by boxes, the most promising shapes first; places may come twice.

    Every shape of a box at the narrowest level is judged by the seconds that a switch full of such
    boxes exposes, or ``by_bytes`` that it sends; the best ``BEAM`` are extended level by level.
    """
    outward = tuple(range(len(digits)))
    for nested in _beam(question, digits, messages, by_bytes):
        sizes = _sizes(nested)
        for axes, largest in product((outward, outward[::-1]), (False, True)):
            ranks = sequence(digits, _factors(nested), axes)
            yield Seed(nested, tuple(pack(question.sites, ranks, sizes, largest)))
        ranks = sequence(digits, _factors(nested), outward)
        yield Seed(nested, tuple(pack(question.sites, ranks, ())))


def _beam(
    question: Question, digits: tuple[int, ...], messages: Sequence[Messages], by_bytes: bool
) -> list[tuple[Shape, ...]]:
    """Nested shapes, one a level; a shape contains those of the narrower levels."""
    kept: list[tuple[Shape, ...]] = [()]
    for level in range(len(levels(question.sites))):
        room = _room(question, level)
        steps = SAMPLES * (room + question.nodes // 8) * max(len(messages), 1) * len(kept)
        most = max(FEWEST_SHAPES, STEPS // steps)
        judged = []
        for nested in kept:
            inner = nested[-1] if nested else (1,) * len(digits)
            outer = tuple(size // part for size, part in zip(digits, inner, strict=True))
            for factor in _largest(shapes(outer, max(room // prod(inner), 1)), most):
                shape = tuple(a * b for a, b in zip(inner, factor, strict=True))
                score = _score(question, digits, (*nested, shape), messages, level)
                judged.append((score, nested, shape))
        judged.sort(key=lambda row: (row[0][by_bytes], -prod(row[2]), row[1:]))
        kept = [(*nested, shape) for _, nested, shape in judged[:BEAM]]
    return kept


def _largest(found: list[Shape], most: int) -> list[Shape]:
    """The ``most`` shapes of the most node ranks."""
    return sorted(found, key=lambda shape: (-prod(shape), shape))[:most]


def _room(question: Question, level: int) -> int:
    """Hosts of the largest bin of a level."""
    room: dict[int, int] = {}
    for number, size in zip(levels(question.sites)[level], question.sites.sizes, strict=True):
        room[number] = room.get(number, 0) + size
    return max(room.values())


def _score(
    question: Question,
    digits: tuple[int, ...],
    nested: tuple[Shape, ...],
    messages: Sequence[Messages],
    level: int,
) -> tuple[float, float]:
    """Seconds and bytes of the fullest of a few bins, filled with boxes of the last shape."""
    sites = question.sites
    room = min(_room(question, level), question.nodes)
    ranks = sequence(digits, _factors(nested), range(len(digits)))
    tier = level - sites.wide
    rate = room * sites.nic_bytes_per_s if tier < 0 else max(sites.tiers[tier].bytes_per_s)
    box = prod(nested[-1])
    starts = {0, (question.nodes - room) // 2 // box * box, question.nodes - room}
    worst = most = 0.0
    for start in sorted(starts)[:SAMPLES]:
        inside = set(ranks[start : start + room])
        spent = sent = 0.0
        for one, floor in zip(messages, question.nic_seconds, strict=True):
            own = one.unit_bytes * one.leaving(inside)
            sent += own
            spent += one.exposure * max(own / rate, 0.0 if sites.wide else floor)
        worst, most = max(worst, spent), max(most, sent)
    return worst, most


def _factors(nested: tuple[Shape, ...]) -> list[Shape]:
    """What each level adds to the one inside it."""
    found, last = [], (1,) * len(nested[0]) if nested else ()
    for shape in nested:
        found.append(tuple(a // b for a, b in zip(shape, last, strict=True)))
        last = shape
    return found


def _sizes(nested: tuple[Shape, ...]) -> list[int]:
    return [prod(shape) for shape in nested]
