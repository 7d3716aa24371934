"""Placement: mesh coordinates, process groups, host and device of every rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from parc.compiler.ir.cluster import Host

PARTS = {"dp": ("dp_shard", "dp_replicate"), "cp": ("cp_a2a", "cp_p2p")}
"""Axis -> the two axes that a mesh may have instead. ``dp`` is split if only some replicas share an
optimizer state. ``cp`` is split if context parallelism combines all-to-all among neighbours with a
ring across them."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A mesh axis with ``size`` ranks; neighbours on it are ``stride`` ranks apart."""

    name: str
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mixed-radix numbering of ranks. The first of the ``axes`` varies fastest."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, sizes: tuple[tuple[str, int], ...]) -> Mesh:
        """Build a mesh from (name, size) pairs, the fastest axis first."""
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
        """Return the axis ``name``; KeyError if the mesh has no such axis."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def select_axes(self, *names: str) -> tuple[Axis, ...]:
        """Return the axes ``names``, the fastest first. A name also selects its two PARTS."""
        wanted = {*names, *(part for name in names for part in PARTS.get(name, ()))}
        return tuple(axis for axis in self.axes if axis.name in wanted)

    def size(self, *names: str) -> int:
        """Return the number of ranks of a group over the axes ``names``."""
        return prod(axis.size for axis in self.select_axes(*names))

    def coordinate(self, rank: int, name: str) -> int:
        """Return the coordinate of ``rank`` on the axis ``name``, from 0."""
        axis = self.axis(name)
        return rank // axis.stride % axis.size

    def groups(self, *names: str) -> list[list[int]]:
        """Return the ranks of every group over the axes ``names``.

        Inside a group the axis that is first in the mesh varies fastest, whatever the order of
        ``names``. Groups are numbered by the other axes, the first in the mesh fastest. This equals
        Megatron's ``RankGenerator.get_ranks`` (megatron/core/parallel_state.py).
        """
        inside = self.select_axes(*names)
        members = _span(inside)
        bases = _span(axis for axis in self.axes if axis not in inside)
        return [[base + member for member in members] for base in bases]


def _span(axes: Iterable[Axis]) -> list[int]:
    """Return the ranks at all coordinates of ``axes``, from rank 0, the first axis fastest."""
    ranks = [0]
    for axis in axes:
        ranks = [step * axis.stride + rank for step in range(axis.size) for rank in ranks]
    return ranks


@dataclass(frozen=True, slots=True)
class PlacementAlternative:
    """An order of hosts that was evaluated, with its traffic over links that hosts share."""

    name: str
    """``stages across racks``, ``replicas across racks``, ``name order``, ``hosts as locked``, or
    the boxes of an order by boxes."""
    uplink_bytes: float
    """Bytes per step over the busiest uplink of a switch, one direction."""
    exposed_seconds: float
    """Sum over all phases of: exposed fraction x bytes over the fullest link / its rate."""
    chosen: bool


HEURISTIC_GAP = 0.5
"""Relative distance from the bound above which the bound gives no useful information."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Cost of the chosen order of hosts, and lower bounds for any order of these hosts."""

    quality: Literal["optimal", "bounded", "heuristic"]
    """optimal: no order is better. bounded: the exposed time is within HEURISTIC_GAP of the bound.
    heuristic: the bound gives no useful information."""
    exposed_seconds: float
    """Exposed seconds per step over shared links."""
    bound_seconds: float
    """Lower bound on the exposed seconds of any order."""
    tie_seconds: float = 0.0
    """Orders that expose at most this much more than the best count as equally fast; among them the
    bytes decide."""
    uplink_bytes: float = 0.0
    """Bytes per step over the busiest uplink of a switch."""
    bound_uplink_bytes: float = 0.0
    """Lower bound on ``uplink_bytes`` of equally fast orders."""
    total_bytes: float = 0.0
    """Bytes per step over all uplinks."""
    bound_total_bytes: float = 0.0
    """Lower bound on ``total_bytes`` of equally fast orders."""

    @property
    def gap(self) -> float:
        """Fraction by which the exposed time exceeds the bound plus the tie; 0.0 if it does not."""
        return _excess(self.exposed_seconds, self.bound_seconds + self.tie_seconds)

    @property
    def bytes_gap(self) -> float:
        """Fraction by which the bytes exceed their bound: busiest uplink or, if 0, all uplinks."""
        busiest = _excess(self.uplink_bytes, self.bound_uplink_bytes)
        return busiest or _excess(self.total_bytes, self.bound_total_bytes)

    @property
    def words(self) -> str:
        """Quality in words: ``optimal (proved)``, ``within 3.2 % of the bound``, ``heuristic``.

        ``exposes least (proved)`` if no order is faster, but an equally fast one might send fewer
        bytes.
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
    """Return the fraction by which ``value`` exceeds ``bound``; 0.0 within the rounding error."""
    if value <= bound * (1 + 1e-9):
        return 0.0
    return value / bound - 1 if bound else float("inf")


UNKNOWN = Proof("heuristic", 0.0, 0.0)
"""Proof of an order that has not been evaluated."""


MeshName = Literal["dense", "expert"]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of process groups that a framework creates: the groups over ``axes`` of one mesh."""

    name: str
    """Name in the framework's documentation: ``tp``, ``dp-cp``, ``ep``."""
    mesh: MeshName
    axes: tuple[str, ...]
    column: bool = False
    """True if the index of a rank in its group is a column of the rank map."""


@dataclass(frozen=True)
class Placement:
    """Host and device of every rank, and the meshes that give its coordinates."""

    order: str
    dense: Mesh
    """Axes tp, cp, dp, pp in the framework's order; dp and cp may be split into PARTS."""
    expert: Mesh
    """Mesh of the experts. For a model without experts its sizes equal the dense ones (etp = tp,
    ep = 1)."""
    families: tuple[Family, ...]
    hosts: tuple[Host, ...]
    """Host of every node rank; rank = node rank x ranks_per_node + local rank."""
    ranks_per_node: int
    alternatives: tuple[PlacementAlternative, ...]
    proof: Proof = UNKNOWN
    devices: tuple[int, ...] = ()
    """Device of every local rank, equal on all hosts. Empty if device and local rank are equal."""

    @property
    def one_mesh(self) -> bool:
        """True if experts share the dense mesh; their groups are then families of that mesh."""
        return self.expert is self.dense

    def host_of(self, rank: int) -> Host:
        """Return the host that ``rank`` runs on."""
        return self.hosts[rank // self.ranks_per_node]

    def mesh(self, name: MeshName) -> Mesh:
        """Return the mesh ``name``."""
        return self.dense if name == "dense" else self.expert

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """Columns of the rank map: family -> coordinate of every rank, in the order of families."""
        shown = (one for one in self.families if one.column)
        return {one.name: group_indexes(self.mesh(one.mesh), one.axes) for one in shown}


def group_indexes(mesh: Mesh, names: tuple[str, ...]) -> list[int]:
    """Return the index of every rank in its group over the axes ``names``.

    Built from repeated patterns rather than by division per rank, because maps have up to
    131,072 ranks.
    """
    column, factor = [0] * mesh.world, 1
    for axis in mesh.select_axes(*names):
        period = [step * factor for step in range(axis.size) for _ in range(axis.stride)]
        digits = period * (mesh.world // len(period))
        column = digits if factor == 1 else [a + b for a, b in zip(column, digits, strict=True)]
        factor *= axis.size
    return column
