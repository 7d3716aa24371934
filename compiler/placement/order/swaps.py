"""Better orders from a good one: two node ranks change places while that helps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

from parc.compiler.placement.order.loads import Crossing, Loads, Score

MOST_WANTED = 40
"""Partners beyond a link, and node ranks under it, that are tried first."""
SMALL = 64
"""Hosts up to which every pair is tried."""


def improve(loads: Loads, trials: int, floor_seconds: float = 0.0) -> int:
    """Swap until no swap helps or ``trials`` are used up; returns the trials that are left.

    First the node ranks under the fullest link change places with neighbours of their partners;
    small jobs then try every pair. A swap is kept where it exposes less, or as much and moves
    fewer bytes; exposed seconds count from ``floor_seconds`` on, and once they are there, the
    fullest link is the one with the most bytes.
    """
    best = loads.score(floor_seconds)
    while trials > 0:
        before = best
        for one, other in _pairs(loads, best[0] <= floor_seconds):
            if trials <= 0:
                break
            trials -= 1
            score = _tried(loads, (one, other), best, floor_seconds)
            if score is not None:
                best = score
                break
        if best == before:
            break
    return trials


def _tried(loads: Loads, pair: tuple[int, int], best: Score, floor: float) -> Score | None:
    """The score after the swap where it is better; else the swap is undone."""
    loads.swap(*pair)
    score = loads.score(floor)
    if _better(score, best):
        return score
    loads.swap(*pair)
    return None


def _better(score: Score, best: Score) -> bool:
    """Less, and by more than what floating point adds."""
    small = 1e-9
    for new, old in zip(score, best, strict=True):
        if abs(new - old) > small * old:
            return new < old
    return False


def _pairs(loads: Loads, tied: bool) -> Iterator[tuple[int, int]]:
    """Pairs worth trying, each once: around the fullest links, then all of a small job."""
    place, seen = loads.place, set[tuple[int, int]]()
    crossing = loads.busiest_crossing() if tied else loads.crossing()
    for one, other in chain(_exchanges(crossing), _followers(crossing, place), _all(place)):
        pair = (min(one, other), max(one, other))
        if place[one] != place[other] and pair not in seen:
            seen.add(pair)
            yield pair


def _exchanges(crossing: Crossing) -> Iterator[tuple[int, int]]:
    """A partner from beyond the link for a node rank that talks to others there."""
    wanted = list(dict.fromkeys(other for _, away in crossing for other in sorted(away)))
    for one, away in crossing[:MOST_WANTED]:
        for other in wanted[:MOST_WANTED]:
            if other not in away:
                yield one, other


def _followers(crossing: Crossing, place: list[int]) -> Iterator[tuple[int, int]]:
    """A node rank for whatever sits beside its partners beyond the link."""
    beside: dict[int, list[int]] = {}
    for node, site in enumerate(place):
        beside.setdefault(site, []).append(node)
    for one, away in crossing:
        for site in dict.fromkeys(place[other] for other in sorted(away)):
            for other in beside[site]:
                yield one, other


def _all(place: list[int]) -> Iterator[tuple[int, int]]:
    """Every pair, where there are few."""
    if len(place) <= SMALL:
        yield from combinations(range(len(place)), 2)
