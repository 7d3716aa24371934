"""Placement of the ranks: host, device and mesh coordinates of each rank, and process groups."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property
from itertools import chain
from math import prod
from typing import Literal

from parc.compiler.ir.cluster import Host
from parc.compiler.ir.frozen import frozen

SUB_AXES = {"dp": ("gtp", "dp_shard", "dp_replicate"), "cp": ("cp_a2a", "cp_p2p")}
"""Axis -> the axes into which a mesh can split it, fastest first. ``dp`` is split if only some of
the data-parallel ranks shard one copy of the state, or share one copy of each weight (``gtp``).
``cp`` is split if context parallelism uses all-to-all inside groups of neighbors and a ring between
these groups."""


@frozen
class Axis:
    """Axis of a device mesh, with the number of ranks along the axis (``size``).

    The rank numbers of two neighbors along the axis differ by ``stride``.
    """

    name: str
    size: int
    stride: int


@frozen
class Mesh:
    """Device mesh: numbering of the ranks by coordinates, with ``axes`` from fastest to slowest."""

    axes: tuple[Axis, ...]

    @classmethod
    def from_sizes(cls, sizes: tuple[tuple[str, int], ...]) -> Mesh:
        """Return the mesh with axes of the given (name, size) pairs, fastest axis first."""
        axes, stride = [], 1
        for name, size in sizes:
            axes.append(Axis(name, size, stride))
            stride *= size
        return cls(tuple(axes))

    @property
    def world(self) -> int:
        """Number of ranks in the mesh."""
        last = self.axes[-1]
        return last.size * last.stride

    def axis_by_name(self, name: str) -> Axis:
        """Return the axis called ``name``.

        Raises:
            KeyError: the mesh has no axis of this name.
        """
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def select_axes(self, *names: str) -> tuple[Axis, ...]:
        """Return the axes called ``names``, fastest axis first.

        If a mesh splits an axis into parts that ``SUB_AXES`` lists for its name, the name selects
        these parts.
        """
        wanted = _with_sub_axes(names)
        return tuple([axis for axis in self.axes if axis.name in wanted])

    def group_size(self, *names: str) -> int:
        """Return the number of ranks in a process group that spans the axes ``names``."""
        return prod(axis.size for axis in self.select_axes(*names))

    def coordinate_of_rank(self, rank: int, name: str) -> int:
        """Return the 0-based coordinate of ``rank`` along the axis called ``name``."""
        axis = self.axis_by_name(name)
        return rank // axis.stride % axis.size

    def groups_along(self, *names: str) -> list[list[int]]:
        """Return the process groups that span the axes ``names``, each as a list of ranks.

        The order of ``names`` has no effect. Ranks are listed with the fastest mesh axis first, and
        so are the groups. The result equals that of Megatron's ``RankGenerator.get_ranks``
        (megatron/core/parallel_state.py).
        """
        inside = self.select_axes(*names)
        members = _ranks_along(inside)
        bases = _ranks_along(axis for axis in self.axes if axis not in inside)
        return [[base + member for member in members] for base in bases]


@cache
def _with_sub_axes(names: tuple[str, ...]) -> frozenset[str]:
    """Return ``names`` and their ``SUB_AXES``."""
    # Callers name dp or cp without checking whether a mesh splits the axis.
    return frozenset(chain(names, *(SUB_AXES.get(name, ()) for name in names)))


def _ranks_along(axes: Iterable[Axis]) -> list[int]:
    """Return rank 0 and all ranks whose coordinates differ from rank 0 only along ``axes``.

    The first of ``axes`` varies fastest in the result.
    """
    ranks = [0]
    for axis in axes:
        # The later axis is the outer loop, so the first axis varies fastest.
        ranks = [step * axis.stride + rank for step in range(axis.size) for rank in ranks]
    return ranks


@frozen
class PlacementAlternative:
    """Traffic over links between hosts for one order of the hosts."""

    name: str
    """Name of the host order: ``stages across racks``, ``replicas across racks``, ``name order``,
    ``hosts as locked``, nested boxes of hosts (``boxes of 4 in 16 hosts``), or the name of another
    rank order."""
    uplink_bytes: float
    """Bytes per step over the busiest uplink of a switch, one direction."""
    exposed_seconds: float
    """Seconds per step that ranks wait for links between hosts. It is a sum over all phases of a
    step: fraction that computation does not hide x bytes over the busiest link / bandwidth of that
    link."""
    chosen: bool


HEURISTIC_GAP = 0.5
"""Largest relative distance between a result and its lower bound at which reports show the bound. A
bound further away does not tell whether the order is good."""


@frozen
class PlacementProof:
    """Quality of the chosen host order, relative to lower bounds for all orders."""

    quality: Literal["optimal", "bounded", "heuristic"]
    """``optimal``: no host order is better. ``bounded``: the relative distance to the lower bound
    is at most HEURISTIC_GAP. ``heuristic``: the distance is larger, so the bound gives no
    information."""
    exposed_seconds: float
    """Seconds per step that ranks wait for links between hosts."""
    bound_seconds: float
    """Lower bound on ``exposed_seconds`` for all host orders."""
    tie_seconds: float
    """Tolerance in seconds: host orders whose exposed times differ by at most this count as equal,
    and the bytes over uplinks decide between them."""
    uplink_bytes: float
    """Bytes per step over the busiest uplink of a switch."""
    total_bytes: float
    """Bytes per step over all uplinks."""
    bytes_gap: float | None
    """Relative excess of bytes over their lower bound. Counted are the bytes over the busiest
    uplink, or over all uplinks if the busiest one meets its bound. None if the bound is 0 bytes and
    the order sends some."""

    @property
    def exposed_gap(self) -> float:
        """Relative excess of the exposed time over ``bound_seconds + tie_seconds``.

        The value is 0.0 if there is no excess.
        """
        return relative_excess(self.exposed_seconds, self.bound_seconds + self.tie_seconds)

    @property
    def summary(self) -> str:
        """Quality of the placement as text for reports, such as ``wait within 3.2 % of the bound``.

        A proved optimum is ``optimal (proved)``, a placement without a useful bound ``heuristic``.
        If only the exposed time is proved minimal, the text starts with ``shortest wait (proved)``.
        """
        if self.quality == "optimal":
            return "optimal (proved)"
        if self.exposed_gap:
            return (
                f"wait {_within_percent(self.exposed_gap)}"
                if self.quality == "bounded"
                else "heuristic"
            )
        # The exposed time is minimal here; only the bytes over uplinks can still be improved.
        gap = self.bytes_gap
        bytes_ = "not proved" if gap is None or gap > HEURISTIC_GAP else _within_percent(gap)
        return f"shortest wait (proved), uplink bytes {bytes_}"


def _within_percent(gap: float) -> str:
    # A gap below 0.1 % must not be printed as "within 0.0 %", which would mean optimal.
    return f"within {max(gap * 100, 0.1):.1f} % of the bound"


def relative_excess(value: float, bound: float) -> float:
    """Return (value - bound) / bound; 0 if ``value`` exceeds ``bound`` only by rounding."""
    # The bound and the value are sums of floats in different orders, hence the tolerance.
    if value <= bound * (1 + 1e-9):
        return 0.0
    return value / bound - 1 if bound else float("inf")


NO_PLACEMENT_PROOF = PlacementProof("heuristic", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Proof for a host order that was not searched, such as the host order of a lock file."""


MeshName = Literal["dense", "expert"]

PlacementPolicy = Literal["auto", "pp-across-racks", "dp-across-racks", "names"]
"""Rule that assigns node ranks to hosts: ``layout.placement`` of the spec."""


@frozen
class GroupFamily:
    """Process groups of one kind: all groups over ``axes`` of the dense or the expert mesh."""

    name: str
    """Name of the groups in the framework: ``tp``, ``dp-cp``, ``ep``."""
    mesh: MeshName
    axes: tuple[str, ...]
    column: bool = False
    """True if the rank map has a column with the index of each rank in its group."""


@frozen(slots=False)
class Placement:
    """Host and device of each rank, and the device meshes from which its process groups follow."""

    order: str
    dense: Mesh
    """Axes tp, cp, dp, pp in the framework's order; cp and dp can be split into their SUB_AXES."""
    expert: Mesh
    """Mesh of the expert layers. For a model without experts it has the sizes of the dense mesh
    (etp = tp, ep = 1)."""
    families: tuple[GroupFamily, ...]
    hosts: tuple[Host, ...]
    """Hosts in the order of their node ranks; rank = node rank x ranks_per_node + local rank."""
    ranks_per_node: int
    alternatives: tuple[PlacementAlternative, ...]
    proof: PlacementProof = NO_PLACEMENT_PROOF
    devices: tuple[int, ...] = ()
    """Device number of each local rank, equal on all hosts; empty if the device number is the local
    rank."""

    @property
    def has_one_mesh(self) -> bool:
        """True if the expert groups are groups of the dense mesh.

        False if the expert groups have a mesh of their own.
        """
        # Identity, not equality: equal sizes with separate expert groups are two meshes.
        return self.expert is self.dense

    def host_of(self, rank: int) -> Host:
        """Return the host that ``rank`` runs on."""
        return self.hosts[rank // self.ranks_per_node]

    def mesh(self, name: MeshName) -> Mesh:
        """Return the dense mesh or the expert mesh, depending on ``name``."""
        return self.dense if name == "dense" else self.expert

    @cached_property
    def rank_map_columns(self) -> dict[str, list[int]]:
        """Columns of the rank map, as (column name -> coordinate of each rank)."""
        shown = (one for one in self.families if one.column)
        return {one.name: group_indexes(self.mesh(one.mesh), one.axes) for one in shown}


def group_indexes(mesh: Mesh, names: tuple[str, ...]) -> list[int]:
    """Return for each rank the position of the rank in its process group.

    The process groups span the axes ``names``; the position varies fastest along the fastest axis.
    Rank maps have up to 131,072 ranks, so the list is built from repeated patterns instead of a
    division per rank.
    """
    column, factor = [0] * mesh.world, 1
    for axis in mesh.select_axes(*names):
        # Along one axis, the coordinate repeats each value ``stride`` times, then starts again.
        period = [step * factor for step in range(axis.size) for _ in range(axis.stride)]
        digits = period * (mesh.world // len(period))
        column = digits if factor == 1 else [a + b for a, b in zip(column, digits, strict=True)]
        factor *= axis.size
    return column
