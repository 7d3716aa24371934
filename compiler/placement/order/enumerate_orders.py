"""Enumeration of the orders of a few hosts; orders that differ only in host names come once."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.placement.order.equivalent_hosts import HostSites

Branch = tuple[int, ...]
"""Path in the switch tree from the widest tier down to a switch, an NVLink domain or a site."""


def enumerate_orders(nodes: int, sites: HostSites) -> Iterator[list[int]]:
    """Yield every way to distribute node ranks over sites, as a list of the site of each node rank.

    A site is a set of equivalent hosts. If several empty switches are equivalent, only the first
    one is tried. The same list object is yielded each time, so a caller that keeps a list must copy
    it.
    """
    symmetry = _symmetry_breaker(sites)
    place: list[int] = [0] * nodes
    free = list(sites.hosts_per_site)
    used: dict[Branch, int] = {}

    def is_canonical(site: int) -> bool:
        """Return False if ``site`` gives the same placement as a site that was tried before.

        Two equivalent sites are interchangeable while both are empty, and so are the sites below
        two empty equivalent switches. Only the first of such sites is tried.
        """
        path = sites.tree_paths[site]
        for depth in range(1, len(path) + 1):
            branch = path[:depth]
            if not used.get(branch) and symmetry.has_earlier_free_equivalent(branch, used):
                return False
        return True

    def place_from(node: int) -> Iterator[list[int]]:
        """Yield ``place`` once for every way to place ``node`` and all later node ranks."""
        if node == nodes:
            yield place
            return
        for site, capacity in enumerate(free):
            if capacity and is_canonical(site):
                place[node] = site
                _add_to_path(sites.tree_paths[site], used, 1)
                free[site] -= 1
                yield from place_from(node + 1)
                # Undo this choice before the next site is tried.
                free[site] += 1
                _add_to_path(sites.tree_paths[site], used, -1)

    return place_from(0)


def _add_to_path(path: Branch, used: dict[Branch, int], change: int) -> None:
    """Add ``change`` to the number of node ranks in each branch of the tree on ``path``."""
    for depth in range(1, len(path) + 1):
        branch = path[:depth]
        used[branch] = used.get(branch, 0) + change


class _SymmetryBreaker:
    """Table of switches, NVLink domains and sites that are interchangeable while they are empty."""

    def __init__(self, earlier: dict[Branch, list[Branch]]) -> None:
        """Store, for each branch of the tree, the equivalent siblings that come before it."""
        self._earlier = earlier

    def has_earlier_free_equivalent(self, branch: Branch, used: dict[Branch, int]) -> bool:
        """Return True if an equivalent sibling that comes before ``branch`` has no node ranks."""
        return any(not used.get(other) for other in self._earlier[branch])


def _symmetry_breaker(sites: HostSites) -> _SymmetryBreaker:
    """Return which branches of the tree (switches, NVLink domains, sites) are interchangeable.

    A site is a set of equivalent hosts. Two branches are interchangeable if they have the same
    parent and the sites below them have the same sizes and structure. The sites of an NVLink domain
    that spans several leaf switches are interchangeable only with each other.
    """
    form: dict[Branch, list[tuple[int, ...]]] = {}
    spanning = _spanning_domains(sites)
    for site, path in enumerate(sites.tree_paths):
        size = (sites.hosts_per_site[site], path[-2] if path[-2] in spanning else -1)
        for depth in range(1, len(path) + 1):
            inner = tuple(
                _index_within_parent(sites, path, level) for level in range(depth, len(path))
            )
            form.setdefault(path[:depth], []).append((*size, *inner))
    earlier: dict[Branch, list[Branch]] = {}
    seen: dict[tuple[object, ...], list[Branch]] = {}
    for branch, rows in form.items():
        alike = seen.setdefault((branch[:-1], tuple(rows)), [])
        earlier[branch] = list(alike)
        alike.append(branch)
    return _SymmetryBreaker(earlier)


def _index_within_parent(sites: HostSites, path: Branch, level: int) -> int:
    """Return the position of the branch at depth ``level`` of ``path`` among its siblings."""
    parent = path[:level]
    found: dict[int, int] = {}
    for other in sites.tree_paths:
        if other[:level] == parent:
            found.setdefault(other[level], len(found))
    return found[path[level]]


def _spanning_domains(sites: HostSites) -> set[int]:
    """Return the NVLink domains with hosts below several leaf switches."""
    leaves: dict[int, set[Branch]] = {}
    for path in sites.tree_paths:
        leaves.setdefault(path[-2], set()).add(path[:-2])
    return {domain for domain, found in leaves.items() if domain >= 0 and len(found) > 1}
