"""Local search: two node ranks exchange their hosts as long as that reduces the cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

from parc.compiler.placement.order.link_loads import LinkLoads, RemotePartners, Score

MOST_TRIED = 40
"""Limit on the node ranks on each side of the busiest link that are tried first. The number of
pairs grows with the square of this limit, and the budget must also suffice for other pairs."""
SMALL_JOB = 64
"""Number of hosts up to which all pairs of hosts are tried."""
ROUNDING = 1e-9
"""Relative difference up to which two scores differ only by rounding error."""


def improve_by_swaps(loads: LinkLoads, trials: int, floor_seconds: float = 0.0) -> int:
    """Swap hosts until no swap helps or ``trials`` swaps were tried; return the remaining trials.

    First, node ranks below the busiest link are moved next to their communication partners. In
    small jobs, all other pairs are then tried. A swap is kept if it reduces ``LinkLoads.score``.
    When the exposed time is at most ``floor_seconds``, swaps reduce the weighted bytes, and the
    busiest link is the one with the most weighted bytes.
    """
    best = loads.score(floor_seconds)
    while trials > 0:
        before = best
        for one, other in _promising_pairs(loads, best[0] <= floor_seconds):
            if trials <= 0:
                break
            trials -= 1
            score = _apply_swap_if_better(loads, (one, other), best, floor_seconds)
            if score is not None:
                # The pairs depend on the loads, so they are listed again after each swap.
                best = score
                break
        if best == before:
            break
    return trials


def _apply_swap_if_better(
    loads: LinkLoads, pair: tuple[int, int], best: Score, floor: float
) -> Score | None:
    """Swap the hosts of the two node ranks ``pair`` if this makes the score less than ``best``.

    Returns the new score, or None if the swap was undone.
    """
    loads.swap_hosts(*pair)
    score = loads.score(floor)
    if _is_better_score(score, best):
        return score
    loads.swap_hosts(*pair)
    return None


def _is_better_score(score: Score, best: Score) -> bool:
    """Return True if ``score`` is less than ``best`` by more than the rounding error."""
    for new, old in zip(score, best, strict=True):
        if abs(new - old) > ROUNDING * old:
            return new < old
    return False


def _promising_pairs(loads: LinkLoads, by_bytes: bool) -> Iterator[tuple[int, int]]:
    """Yield pairs of node ranks that are worth swapping, each pair once.

    Pairs around the busiest links come first; in small jobs, all other pairs follow.
    """
    place, seen = loads.place, set[tuple[int, int]]()
    remote = (
        loads.partners_over_busiest_uplink() if by_bytes else loads.partners_over_slowest_links()
    )
    for one, other in chain(
        _pairs_across_link(remote), _pairs_that_join_partners(remote, place), _all_swap_pairs(place)
    ):
        pair = (min(one, other), max(one, other))
        if place[one] != place[other] and pair not in seen:
            # Several generators may yield the same pair.
            seen.add(pair)
            yield pair


def _pairs_across_link(remote: RemotePartners) -> Iterator[tuple[int, int]]:
    """Yield pairs of node ranks to swap: one below the busiest link, and one on its other side.

    The second node rank communicates over the link with other node ranks, but not with the first
    one.
    """
    wanted = list(dict.fromkeys(other for _, away in remote for other in sorted(away)))
    for one, away in remote[:MOST_TRIED]:
        for other in wanted[:MOST_TRIED]:
            if other not in away:
                yield one, other


def _pairs_that_join_partners(
    remote: RemotePartners, place: list[int]
) -> Iterator[tuple[int, int]]:
    """Yield pairs whose swap moves a node rank below the busiest link next to a partner.

    A partner communicates with the node rank over this link. A pair is (the node rank, a node rank
    in the same site as the partner). A site is a set of equivalent hosts.
    """
    neighbors: dict[int, list[int]] = {}
    for node, site in enumerate(place):
        neighbors.setdefault(site, []).append(node)
    for one, away in remote:
        for site in dict.fromkeys(place[other] for other in sorted(away)):
            for other in neighbors[site]:
                yield one, other


def _all_swap_pairs(place: list[int]) -> Iterator[tuple[int, int]]:
    """Yield all pairs of node ranks and idle hosts in a small job, and no pair in a larger job."""
    if len(place) <= SMALL_JOB:
        yield from combinations(range(len(place)), 2)
