"""Assignment of node ranks to hosts: whole blocks below one switch first, then smaller blocks.

A block is a run of node ranks that should share a switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from parc.compiler.placement.order.equivalent_hosts import SINGLE_HOST, HostSites

Bins = list[list[int]]
"""Sites (sets of equivalent hosts) of every switch or NVLink domain."""


def pack_node_ranks(
    sites: HostSites, ranks: Sequence[int], sizes: Sequence[int], largest_first: bool = False
) -> list[int]:
    """Return the site (set of equivalent hosts) of every node rank.

    A block is a set of consecutive node ranks that should share a switch.

    Args:
        sites: sites to fill, with at least as many hosts as ``ranks``.
        ranks: node ranks in an order in which neighbors should share a switch.
        sizes: node ranks per block, for each level of switches (NVLink domains first, if they have
            several hosts); 0 if there are no blocks at this level.
        largest_first: True to fill the switches with the most hosts first; otherwise in tree order.
    """
    free = list(sites.hosts_per_site)
    place = [0] * len(ranks)
    order = list(range(len(free)))
    if largest_first:
        order = _sort_by_capacity(sites, order)
    packer = _Packer(bins_by_level(sites), free, place)
    packer.place_in_blocks(ranks, order, list(sizes))
    return place


def bins_by_level(sites: HostSites) -> list[tuple[int, ...]]:
    """Return one tuple per level, with the number of the bin that contains each site.

    A site is a set of equivalent hosts. A bin is an NVLink domain or a switch. If NVLink domains
    have several hosts, they are the first level. All other levels are tiers of switches.
    """
    found = []
    if sites.multi_host_domains:
        found.append(
            # Outside multi-host domains, all hosts of a site form one bin.
            tuple(~site if d == SINGLE_HOST else d for site, d in enumerate(sites.domains))
        )
    return [*found, *(tier.zones for tier in sites.tiers)]


def _sort_by_capacity(sites: HostSites, order: list[int]) -> list[int]:
    """Return the sites (sets of equivalent hosts), those below the largest switches first.

    The largest switch has the most hosts below it. The switches of the widest level are compared
    first.
    """
    capacities: list[dict[int, int]] = []
    for numbers in zip(*sites.tree_paths, strict=True):
        hosts: dict[int, int] = {}
        for number, size in zip(numbers, sites.hosts_per_site, strict=True):
            hosts[number] = hosts.get(number, 0) + size
        capacities.append(hosts)

    def key(site: int) -> tuple[int, ...]:
        """Return -(hosts below the switch) and the number of the switch, for each level."""
        pairs = zip(sites.tree_paths[site], capacities, strict=True)
        return tuple(value for number, hosts in pairs for value in (-hosts[number], number))

    return sorted(order, key=key)


class _Packer:
    """Free hosts per site, and the site of every node rank that is already placed."""

    def __init__(self, bins: list[tuple[int, ...]], free: list[int], place: list[int]) -> None:
        self._bins, self._free, self._place = bins, free, place

    def place_in_blocks(self, ranks: Sequence[int], sites: list[int], sizes: list[int]) -> None:
        """Place ``ranks`` on ``sites`` in blocks of ``sizes[-1]`` node ranks, which share a switch.

        Each bin (switch or NVLink domain) first receives as many whole blocks as fit. The blocks
        that remain are divided into blocks of the next smaller size, and are placed on the
        remaining hosts of all bins.
        """
        if not sizes:
            self._place_one_by_one(ranks, sites)
            return
        size, finer = sizes[-1], sizes[:-1]
        if not size:
            self.place_in_blocks(ranks, sites, finer)
            return
        blocks = iter([ranks[start : start + size] for start in range(0, len(ranks), size)])
        for bin_sites in self._group_by_switch(sites, len(sizes) - 1):
            capacity = sum(self._free[site] for site in bin_sites)
            whole = list(islice(blocks, capacity // size))
            if whole:
                self.place_in_blocks([rank for block in whole for rank in block], bin_sites, finer)
        rest = [rank for block in blocks for rank in block]
        if rest:
            self.place_in_blocks(rest, sites, finer)

    def _group_by_switch(self, sites: list[int], level: int) -> Bins:
        """Return ``sites`` grouped by the switch (or NVLink domain) above them at ``level``.

        The groups are in the order in which their first sites appear in ``sites``.
        """
        groups: dict[int, list[int]] = {}
        for site in sites:
            groups.setdefault(self._bins[level][site], []).append(site)
        return list(groups.values())

    def _place_one_by_one(self, ranks: Sequence[int], sites: list[int]) -> None:
        """Place ``ranks`` one by one on the free hosts of ``sites`` (sets of equivalent hosts)."""
        source = iter(ranks)
        for site in sites:
            for rank in islice(source, self._free[site]):
                self._place[rank] = site
                self._free[site] -= 1
