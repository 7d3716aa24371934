"""Placement of the ranks: mesh coordinates, process groups, host and device of each rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from parc.compiler.ir.cluster import Host

SUB_AXES = {"dp": ("dp_shard", "dp_replicate"), "cp": ("cp_a2a", "cp_p2p")}
"""Axis -> the two axes into which a mesh can split it, fastest first.

``dp`` is split if only some of the data-parallel ranks shard one copy of the state, ``cp`` if
context parallelism uses all-to-all among neighbours and a ring between those groups.
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """Mesh axis of ``size`` ranks; rank numbers of neighbours differ by ``stride``."""

    name: str
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """Device mesh: a mixed-radix numbering of the ranks, with ``axes`` from fastest to slowest."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, sizes: tuple[tuple[str, int], ...]) -> Mesh:
        """Return the mesh with axes of these (name, size) pairs, fastest first."""
        axes, stride = [], 1
        for name, size in sizes:
            axes.append(Axis(name, size, stride))
            stride *= size
        return cls(tuple(axes))

    @property
    def world(self) -> int:
        """Number of ranks."""
        last = self.axes[-1]
        return last.size * last.stride

    def axis(self, name: str) -> Axis:
        """Return the axis with this name.

        Raises:
            KeyError: the mesh has no such axis.
        """
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def select_axes(self, *names: str) -> tuple[Axis, ...]:
        """Return the axes with these names, fastest first.

        The name of an axis that the mesh splits selects both of its ``SUB_AXES``.
        """
        wanted = {*names, *(part for name in names for part in SUB_AXES.get(name, ()))}
        return tuple(axis for axis in self.axes if axis.name in wanted)

    def size(self, *names: str) -> int:
        """Return the size of a group over the axes ``names``."""
        return prod(axis.size for axis in self.select_axes(*names))

    def coordinate(self, rank: int, name: str) -> int:
        """Return the 0-based coordinate of ``rank`` along the axis ``name``."""
        axis = self.axis(name)
        return rank // axis.stride % axis.size

    def groups(self, *names: str) -> list[list[int]]:
        """Return all groups that span the axes ``names``, as lists of ranks.

        The order of ``names`` does not matter: inside a group the faster mesh axis varies faster,
        and groups are numbered along the remaining axes, also the faster one first. This equals
        Megatron's ``RankGenerator.get_ranks`` (megatron/core/parallel_state.py).
        """
        inside = self.select_axes(*names)
        members = _span(inside)
        bases = _span(axis for axis in self.axes if axis not in inside)
        return [[base + member for member in members] for base in bases]


def _span(axes: Iterable[Axis]) -> list[int]:
    """Return the ranks that differ from rank 0 only along ``axes``, the first axis fastest."""
    ranks = [0]
    for axis in axes:
        ranks = [step * axis.stride + rank for step in range(axis.size) for rank in ranks]
    return ranks


@dataclass(frozen=True, slots=True)
class PlacementAlternative:
    """Traffic over shared links under one host order."""

    name: str
    """Name of the host order: ``stages across racks``, ``replicas across racks``, ``name order``,
    ``hosts as locked``, a nesting of boxes (``boxes of 4 in 16 hosts``), or another rank order."""
    uplink_bytes: float
    """Bytes per step over the busiest uplink of a switch, one direction."""
    exposed_seconds: float
    """Seconds per step that ranks wait for shared links: the sum over all phases of exposed share x
    bytes over the busiest link / bandwidth of that link."""
    chosen: bool


HEURISTIC_GAP = 0.5
"""Largest relative distance to a lower bound at which the bound is reported; a bound further
away gives no information about the order."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Quality of the chosen host order, with lower bounds for all orders of these hosts."""

    quality: Literal["optimal", "bounded", "heuristic"]
    """``optimal``: no order is better. ``bounded``: the gap to the bound is at most HEURISTIC_GAP.
    ``heuristic``: the bounds give no information."""
    exposed_seconds: float
    """Seconds per step that ranks wait for shared links."""
    bound_seconds: float
    """Lower bound on ``exposed_seconds`` for all orders."""
    tie_seconds: float
    """Orders whose exposed time is within this of the minimum count as equal; bytes decide then."""
    uplink_bytes: float
    """Bytes per step over the busiest uplink of a switch."""
    bound_uplink_bytes: float
    """Lower bound on ``uplink_bytes`` for orders whose exposed time counts as equal."""
    total_bytes: float
    """Bytes per step over all uplinks."""
    bound_total_bytes: float
    """Lower bound on ``total_bytes`` for orders whose exposed time counts as equal."""

    @property
    def gap(self) -> float:
        """Relative excess of the exposed time over bound plus tie; 0.0 if there is none."""
        return _excess(self.exposed_seconds, self.bound_seconds + self.tie_seconds)

    @property
    def bytes_gap(self) -> float:
        """Relative excess of the bytes over their bound.

        It is that of the busiest uplink, or of all uplinks if the busiest one meets its bound.
        """
        busiest = _excess(self.uplink_bytes, self.bound_uplink_bytes)
        return busiest or _excess(self.total_bytes, self.bound_total_bytes)

    @property
    def summary(self) -> str:
        """Text for reports: ``optimal (proved)``, ``within 3.2 % of the bound`` or ``heuristic``.

        If the exposed time is proved minimal and only the bytes are above their bound, the text
        starts with ``exposes least (proved)``.
        """
        if self.quality == "optimal":
            return "optimal (proved)"
        if self.gap:
            return f"{_near(self.gap)} of the bound" if self.quality == "bounded" else "heuristic"
        near = self.bytes_gap <= HEURISTIC_GAP
        bytes_ = _near(self.bytes_gap) if near else "heuristic"
        return f"exposes least (proved), uplink bytes {bytes_}"


def _near(gap: float) -> str:
    return f"within {max(gap * 100, 0.1):.1f} %"


def _excess(value: float, bound: float) -> float:
    """Return the relative excess of ``value`` over ``bound``; rounding errors count as 0."""
    if value <= bound * (1 + 1e-9):
        return 0.0
    return value / bound - 1 if bound else float("inf")


NO_PROOF = Proof("heuristic", 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Proof of a host order that was not searched, such as one from a lock file."""


MeshName = Literal["dense", "expert"]


@dataclass(frozen=True, slots=True)
class GroupFamily:
    """Process groups of one kind: all groups over ``axes`` of one of the framework's meshes."""

    name: str
    """Name that users of the framework know: ``tp``, ``dp-cp``, ``ep``."""
    mesh: MeshName
    axes: tuple[str, ...]
    column: bool = False
    """True if the index of a rank in its group is a column of the rank map."""


@dataclass(frozen=True)
class Placement:
    """Host and device of each rank, and the meshes that define its groups."""

    order: str
    dense: Mesh
    """Axes tp, cp, dp, pp in the framework's order; cp and dp can be split into their SUB_AXES."""
    expert: Mesh
    """Mesh of the experts; without experts it has the dense sizes (etp = tp, ep = 1)."""
    families: tuple[GroupFamily, ...]
    hosts: tuple[Host, ...]
    """Hosts by node rank; rank = node rank x ranks_per_node + local rank."""
    ranks_per_node: int
    alternatives: tuple[PlacementAlternative, ...]
    proof: Proof = NO_PROOF
    devices: tuple[int, ...] = ()
    """Device of each local rank, equal on all hosts; empty = device number is the local rank."""

    @property
    def one_mesh(self) -> bool:
        """True if experts have no separate mesh; their groups are groups of the dense mesh."""
        return self.expert is self.dense

    def host_of(self, rank: int) -> Host:
        """Return the host on which ``rank`` runs."""
        return self.hosts[rank // self.ranks_per_node]

    def mesh(self, name: MeshName) -> Mesh:
        """Return the dense or the expert mesh."""
        return self.dense if name == "dense" else self.expert

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """Column of the rank map -> coordinate of each rank, in the order of ``families``."""
        shown = (one for one in self.families if one.column)
        return {one.name: group_indexes(self.mesh(one.mesh), one.axes) for one in shown}


def group_indexes(mesh: Mesh, names: tuple[str, ...]) -> list[int]:
    """Return the index of each rank in its group over the axes ``names``, fastest axis first.

    Built from repeated patterns instead of a division per rank, because rank maps have up to
    131,072 ranks.
    """
    column, factor = [0] * mesh.world, 1
    for axis in mesh.select_axes(*names):
        period = [step * factor for step in range(axis.size) for _ in range(axis.stride)]
        digits = period * (mesh.world // len(period))
        column = digits if factor == 1 else [a + b for a, b in zip(column, digits, strict=True)]
        factor *= axis.size
    return column
