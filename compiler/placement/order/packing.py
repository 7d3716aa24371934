"""Node ranks to sites: whole blocks under one switch first, what does not fit is cut finer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from parc.compiler.placement.order.sites import ALONE, Sites

Bins = list[list[int]]
"""Sites by bin."""


def pack(
    sites: Sites, ranks: Sequence[int], sizes: Sequence[int], largest_first: bool = False
) -> list[int]:
    """Site of every node rank.

    Args:
        sites: where they may go; there are at least as many hosts as ``ranks``.
        ranks: in the order in which neighbours belong together.
        sizes: node ranks of a block for every bin level of ``levels``; 0 where blocks of a level
            do not matter.
        largest_first: whether bins with more room come first; else in the order of the tree.
    """
    free = list(sites.sizes)
    place = [0] * len(ranks)
    order = list(range(len(free)))
    if largest_first:
        order = _by_room(sites, order)
    packer = _Packer(levels(sites), free, place)
    packer.fill(ranks, order, list(sizes))
    return place


def levels(sites: Sites) -> list[tuple[int, ...]]:
    """Bin of every site at each level where blocks can stay whole: NVLink domain, then tiers."""
    found = []
    if sites.wide:
        found.append(tuple(~site if d == ALONE else d for site, d in enumerate(sites.domains)))
    return [*found, *(tier.zones for tier in sites.tiers)]


def _by_room(sites: Sites, order: list[int]) -> list[int]:
    """Sites sorted by the room of the switches above them, the widest level first."""
    rooms: list[dict[int, int]] = []
    for numbers in zip(*sites.trees, strict=True):
        room: dict[int, int] = {}
        for number, size in zip(numbers, sites.sizes, strict=True):
            room[number] = room.get(number, 0) + size
        rooms.append(room)

    def key(site: int) -> tuple[int, ...]:
        pairs = zip(sites.trees[site], rooms, strict=True)
        return tuple(value for number, room in pairs for value in (-room[number], number))

    return sorted(order, key=key)


class _Packer:
    """Free room by site, and what was placed."""

    def __init__(self, bins: list[tuple[int, ...]], free: list[int], place: list[int]) -> None:
        self._bins, self._free, self._place = bins, free, place

    def fill(self, ranks: Sequence[int], sites: list[int], sizes: list[int]) -> None:
        """Place ``ranks`` on ``sites``: blocks of the last of ``sizes``, the rest in finer ones."""
        if not sizes:
            self._pour(ranks, sites)
            return
        size, finer = sizes[-1], sizes[:-1]
        if not size:
            self.fill(ranks, sites, finer)
            return
        blocks = iter([ranks[start : start + size] for start in range(0, len(ranks), size)])
        for bin_sites in self._grouped(sites, len(sizes) - 1):
            room = sum(self._free[site] for site in bin_sites)
            whole = list(islice(blocks, room // size))
            if whole:
                self.fill([rank for block in whole for rank in block], bin_sites, finer)
        rest = [rank for block in blocks for rank in block]
        if rest:
            self.fill(rest, sites, finer)

    def _grouped(self, sites: list[int], level: int) -> Bins:
        groups: dict[int, list[int]] = {}
        for site in sites:
            groups.setdefault(self._bins[level][site], []).append(site)
        return list(groups.values())

    def _pour(self, ranks: Sequence[int], sites: list[int]) -> None:
        source = iter(ranks)
        for site in sites:
            for rank in islice(source, self._free[site]):
                self._place[rank] = site
                self._free[site] -= 1
