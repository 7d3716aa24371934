"""Every order of a few hosts, those that differ by names alone taken once."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.placement.order.sites import Sites


def every_place(nodes: int, sites: Sites) -> Iterator[list[int]]:
    """Site of every node rank, for all ways to spread ``nodes`` over the sites.

    Switches that are alike (as many hosts beneath, cut in the same way) are told apart only once
    something lies under them. The list is reused: copy what is kept.
    """
    shapes = _shapes(sites)
    place: list[int] = [0] * nodes
    free = list(sites.sizes)
    used: dict[tuple[int, ...], int] = {}

    def first_of_its_kind(site: int) -> bool:
        """No empty switch before one above ``site``, or ``site``, is like it."""
        tree = sites.trees[site]
        for depth in range(1, len(tree) + 1):
            branch = tree[:depth]
            if not used.get(branch) and shapes.before(branch, used):
                return False
        return True

    def place_from(node: int) -> Iterator[list[int]]:
        if node == nodes:
            yield place
            return
        for site, room in enumerate(free):
            if room and first_of_its_kind(site):
                place[node] = site
                _count(sites.trees[site], used, 1)
                free[site] -= 1
                yield from place_from(node + 1)
                free[site] += 1
                _count(sites.trees[site], used, -1)

    return place_from(0)


def _count(tree: tuple[int, ...], used: dict[tuple[int, ...], int], change: int) -> None:
    for depth in range(1, len(tree) + 1):
        branch = tree[:depth]
        used[branch] = used.get(branch, 0) + change


class _Shapes:
    """Which branches of the tree look alike."""

    def __init__(self, alike: dict[tuple[int, ...], list[tuple[int, ...]]]) -> None:
        self._earlier = alike

    def before(self, branch: tuple[int, ...], used: dict[tuple[int, ...], int]) -> bool:
        """Whether an empty branch like ``branch`` stands before it under the same switch."""
        return any(not used.get(other) for other in self._earlier[branch])


def _shapes(sites: Sites) -> _Shapes:
    """Earlier siblings of the same form, for every branch.

    A site under an NVLink domain that spans switches makes siblings differ.
    """
    form: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    spanning = _spanning(sites)
    for site, tree in enumerate(sites.trees):
        size = (sites.sizes[site], tree[-2] if tree[-2] in spanning else -1)
        for depth in range(1, len(tree) + 1):
            branch = tree[:depth]
            inner = tuple(_local(sites, tree, level) for level in range(depth, len(tree)))
            form.setdefault(branch, []).append((*size, *inner))
    earlier: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    seen: dict[tuple[object, ...], list[tuple[int, ...]]] = {}
    for branch, rows in form.items():
        alike = seen.setdefault((branch[:-1], tuple(rows)), [])
        earlier[branch] = list(alike)
        alike.append(branch)
    return _Shapes(earlier)


def _local(sites: Sites, tree: tuple[int, ...], level: int) -> int:
    """Number of a branch among those of its parent, by first use."""
    parent = tree[:level]
    found: dict[int, int] = {}
    for other in sites.trees:
        if other[:level] == parent:
            found.setdefault(other[level], len(found))
    return found[tree[level]]


def _spanning(sites: Sites) -> set[int]:
    """NVLink domains with hosts under several leaf switches."""
    homes: dict[int, set[tuple[int, ...]]] = {}
    for tree in sites.trees:
        homes.setdefault(tree[-2], set()).add(tree[:-2])
    return {domain for domain, found in homes.items() if domain >= 0 and len(found) > 1}
