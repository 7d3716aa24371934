"""Orders of hosts that are built from boxes of neighboring node ranks.

Node ranks form a grid. Its axes, the node axes, are the axes of the dense and the expert mesh
outside a host, split where the axes of both meshes begin and end. A box is a part of this grid
whose node ranks should share a switch; the shape of a box is its length along each node axis. The
boxes of one shape together contain every node rank exactly once, so a shape decides which parallel
axes stay below which level of switches. On a regular tree of switches, these boxes give all
mixed-radix orders, the search space of arXiv:2001.07134 (process mapping).

A beam search scores the shapes level by level, from the narrowest switches to the widest, by the
traffic that leaves a switch filled with such boxes. That costs far less than evaluating whole
orders, so only the orders of the best shapes are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from math import prod

from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.placement import Axis, Mesh
from parc.compiler.placement.order.equivalent_hosts import SINGLE_HOST, HostSites
from parc.compiler.placement.order.link_loads import NodeMessages
from parc.compiler.placement.order.placement_problem import PlacementProblem

BoxShape = tuple[int, ...]
"""Length of a box along each node axis, the fastest axis first."""


def node_axis_sizes(meshes: Iterable[Mesh], per_node: int) -> tuple[int, ...]:
    """Return the number of node ranks along each node axis, the fastest axis first.

    Node axes are the axes of a grid of all node ranks. The boundaries between node axes are the
    boundaries of the mesh axes, counted in node ranks. A boundary is ignored if it is not a
    multiple of the boundary before it, because no grid then fits both.
    """
    found = list(meshes)
    nodes = found[0].world // per_node
    edges = {nodes} | {
        edge // per_node for mesh in found for edge in _axis_boundaries(mesh, per_node)
    }
    sizes, last = [], 1
    for edge in sorted(edges):
        if edge > last and edge % last == 0 and nodes % edge == 0:
            sizes.append(edge // last)
            last = edge
    return tuple(sizes)


def _axis_boundaries(mesh: Mesh, per_node: int) -> Iterator[int]:
    """Yield the stride, and the stride times the size, of each axis of ``mesh``, in ranks.

    These are the rank offsets at which the axis begins and ends. Offsets inside a host are left
    out.
    """
    for axis in mesh.axes:
        yield from (edge for edge in (axis.stride, axis.stride * axis.size) if not edge % per_node)


def node_axes_within(
    axes: tuple[Axis, ...], axis_sizes: tuple[int, ...], per_node: int
) -> tuple[int, ...]:
    """Return the indexes of the node axes that lie completely within one of the mesh ``axes``.

    The product of the sizes of these node axes is the number of hosts of a process group over
    ``axes``, provided that node axes begin and end exactly where the mesh axes do.
    """
    inside, stride = [], per_node
    for index, size in enumerate(axis_sizes):
        # The whole digit is inside one of the axes.
        if any(a.stride <= stride and stride * size <= a.stride * a.size for a in axes):
            inside.append(index)
        stride *= size
    return tuple(inside)


def box_shapes(axis_sizes: tuple[int, ...], most: int) -> list[BoxShape]:
    """Return the shapes of all boxes with at most ``most`` node ranks.

    A box is a set of neighboring node ranks that share a switch. The shape of a box is a tuple of
    its lengths along the node axes. Each length divides the size of the node axis.
    """
    choices = [divisors(size, most) for size in axis_sizes]
    return [shape for shape in product(*choices) if prod(shape) <= most]


def ranks_by_box(
    axis_sizes: tuple[int, ...], nested: Iterable[BoxShape], outward: Iterable[int]
) -> list[int]:
    """Return all node ranks, ordered such that the node ranks of each box are consecutive.

    A box is a set of neighboring node ranks that share a switch.

    Args:
        axis_sizes: number of node ranks along each node axis, the fastest axis first.
        nested: for each level, how many boxes of the level before form a box, along each node axis.
            The level with the smallest boxes comes first.
        outward: indexes of the node axes, in the order in which the largest boxes are repeated.
    """
    strides = [prod(axis_sizes[:index]) for index in range(len(axis_sizes))]
    left = list(axis_sizes)
    ranks = [0]

    def repeat_along(index: int, size: int) -> None:
        """Append ``size`` - 1 copies of ``ranks``, each shifted one step further along a node axis.

        ``index`` is the index of the node axis.
        """
        nonlocal ranks
        stride = strides[index]
        ranks = [base + step * stride for step in range(size) for base in ranks]
        strides[index] *= size
        left[index] //= size

    for shape in nested:
        for index, size in enumerate(shape):
            repeat_along(index, size)
    for index in outward:
        repeat_along(index, left[index])
    return ranks


BEAM = 6
"""Number of box shapes that the beam search keeps from level to level."""
SAMPLES = 3
"""Number of positions of a switch that are scored per shape: the start, the middle and the end of
the job."""
STEPS = 400_000
"""Approximate number of messages that are counted to score the shapes of one level."""
FEWEST_SHAPES = 8
"""Least number of shapes that are scored, however large the job."""


@frozen
class BoxOrder:
    """Order of hosts that is built from nested boxes of node ranks."""

    nested: tuple[BoxShape, ...]
    """Box shape for each level of ``packing.bins_by_level``, the narrowest level first."""
    place: tuple[int, ...]
    """Site (set of equivalent hosts) of every node rank."""


def build_orders_from_boxes(
    problem: PlacementProblem, messages: Sequence[NodeMessages], by_bytes: bool
) -> Iterator[BoxOrder]:
    """Yield orders of hosts for each way to cut the node ranks into boxes, the best way first.

    The node ranks form a grid with one axis per kind of parallelism. A box is a block of this grid
    whose hosts share one switch, and all boxes have the same shape. The score of a shape is the
    cost of one switch that is filled with such boxes: the exposed communication in seconds or, with
    ``by_bytes``, the weighted bytes that leave the switch.

    Each shape gives five orders. In four of them, the boxes follow the grid along its fastest or
    its slowest axis first, and fill the switches in the order of the tree or the largest switch
    first. The fifth order may divide a box between switches.
    """
    axis_sizes = problem.node_axis_sizes
    outward = tuple(range(len(axis_sizes)))
    for nested in _beam_search(problem, messages, by_bytes):
        sizes = [prod(shape) for shape in nested]
        for axes, largest in product((outward, outward[::-1]), (False, True)):
            ranks = ranks_by_box(axis_sizes, _factors_between_levels(nested), axes)
            yield BoxOrder(nested, tuple(pack_node_ranks(problem.sites, ranks, sizes, largest)))
        ranks = ranks_by_box(axis_sizes, _factors_between_levels(nested), outward)
        yield BoxOrder(nested, tuple(pack_node_ranks(problem.sites, ranks, ())))


def _beam_search(
    problem: PlacementProblem, messages: Sequence[NodeMessages], by_bytes: bool
) -> list[tuple[BoxShape, ...]]:
    """Return the best lists of box shapes, one shape per level of switches, narrowest level first.

    The box of a level consists of whole boxes of the next narrower level. If two shapes have the
    same score, the larger box is better.
    """
    axis_sizes = problem.node_axis_sizes
    kept: list[tuple[BoxShape, ...]] = [()]
    for level in range(len(bins_by_level(problem.sites))):
        capacity = _hosts_of_largest_switch(problem, level)
        steps = SAMPLES * (capacity + problem.nodes // 8) * max(len(messages), 1) * len(kept)
        # The more work a shape takes, the fewer shapes are scored.
        most = max(FEWEST_SHAPES, STEPS // steps)
        scored = []
        for nested in kept:
            inner = nested[-1] if nested else (1,) * len(axis_sizes)
            outer = tuple(size // part for size, part in zip(axis_sizes, inner, strict=True))
            for factor in _largest_shapes(box_shapes(outer, max(capacity // prod(inner), 1)), most):
                shape = tuple(a * b for a, b in zip(inner, factor, strict=True))
                score = _score_full_switch(problem, (*nested, shape), messages, level)
                scored.append((score, nested, shape))
        scored.sort(key=lambda row: (row[0][by_bytes], -prod(row[2]), row[1:]))
        kept = [(*nested, shape) for _, nested, shape in scored[:BEAM]]
    return kept


def _largest_shapes(shapes: list[BoxShape], most: int) -> list[BoxShape]:
    """Return the ``most`` shapes with the most node ranks, the largest shape first."""
    return sorted(shapes, key=lambda shape: (-prod(shape), shape))[:most]


def _hosts_of_largest_switch(problem: PlacementProblem, level: int) -> int:
    """Return the number of hosts below the largest switch (or NVLink domain) of ``level``."""
    hosts: dict[int, int] = {}
    for number, size in zip(
        bins_by_level(problem.sites)[level], problem.sites.hosts_per_site, strict=True
    ):
        hosts[number] = hosts.get(number, 0) + size
    return max(hosts.values())


def _score_full_switch(
    problem: PlacementProblem,
    nested: tuple[BoxShape, ...],
    messages: Sequence[NodeMessages],
    level: int,
) -> tuple[float, float]:
    """Return (exposed seconds, weighted bytes) of a switch that is full of boxes ``nested[-1]``.

    The switch has as many hosts as the largest switch of ``level``. The result is the worst of up
    to three positions of the switch in the job: at the start, in the middle and at the end. Boxes
    of one shape send the same number of bytes, except at the ends of pipelines.
    """
    sites = problem.sites
    capacity = min(_hosts_of_largest_switch(problem, level), problem.nodes)
    ranks = ranks_by_box(
        problem.node_axis_sizes,
        _factors_between_levels(nested),
        range(len(problem.node_axis_sizes)),
    )
    tier = level - sites.multi_host_domains
    rate = capacity * sites.nic_bytes_per_s if tier < 0 else max(sites.tiers[tier].bytes_per_s)
    box = prod(nested[-1])
    last = problem.nodes - capacity
    # The first, a middle and the last switch; pipelines end in the first and the last one.
    starts = {0, last // 2 // box * box, last}
    worst = most = 0.0
    for start in sorted(starts)[:SAMPLES]:
        inside = set(ranks[start : start + capacity])
        spent = sent = 0.0
        phases = zip(messages, problem.nic_seconds, problem.weights, strict=True)
        for one, floor, weight in phases:
            own = one.unit_bytes * one.count_leaving_messages(inside)
            sent += own * weight
            spent += one.exposure * max(own / rate, 0.0 if sites.multi_host_domains else floor)
        worst, most = max(worst, spent), max(most, sent)
    return worst, most


def _factors_between_levels(nested: tuple[BoxShape, ...]) -> list[BoxShape]:
    """Return the shape of the boxes of each level, counted in boxes of the next narrower level."""
    found, last = [], (1,) * len(nested[0]) if nested else ()
    for shape in nested:
        found.append(tuple(a // b for a, b in zip(shape, last, strict=True)))
        last = shape
    return found


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
