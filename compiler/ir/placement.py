"""Which rank is which: mesh coordinates, groups, host and device of every rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from parc.compiler.ir.cluster import Host

PARTS = {"dp": ("dp_shard", "dp_replicate"), "cp": ("cp_a2a", "cp_p2p")}
"""Axes that a mesh has in place of one: ``dp`` where only some replicas share one optimizer state,
``cp`` where context ranks exchange by all-to-all among neighbours and by a ring beyond."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One mesh axis: ``size`` ranks, neighbours ``stride`` ranks apart."""

    name: str
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """A mixed-radix numbering of ranks; ``axes`` from the fastest to the slowest."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, sizes: tuple[tuple[str, int], ...]) -> Mesh:
        """Build from (name, size) pairs, fastest first."""
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
        """The axis called ``name``; KeyError where there is none."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def over(self, *names: str) -> tuple[Axis, ...]:
        """The axes called ``names``, fastest first; a name stands for its two PARTS as well."""
        wanted = {*names, *(part for name in names for part in PARTS.get(name, ()))}
        return tuple(axis for axis in self.axes if axis.name in wanted)

    def size(self, *names: str) -> int:
        """Ranks of a group over the axes ``names``."""
        return prod(axis.size for axis in self.over(*names))

    def coordinate(self, rank: int, name: str) -> int:
        """Coordinate of ``rank`` along ``name``, from 0."""
        axis = self.axis(name)
        return rank // axis.stride % axis.size

    def groups(self, *names: str) -> list[list[int]]:
        """Every group that spans the axes ``names``.

        Inside a group the axis that is first in the mesh varies fastest, whatever the order of
        ``names``; groups are numbered by the other axes, first in the mesh fastest. This equals
        Megatron's ``RankGenerator.get_ranks`` (megatron/core/parallel_state.py).
        """
        inside = self.over(*names)
        members = _span(inside)
        bases = _span(axis for axis in self.axes if axis not in inside)
        return [[base + member for member in members] for base in bases]


def _span(axes: Iterable[Axis]) -> list[int]:
    """Ranks reached from rank 0 along ``axes``, the first axis fastest."""
    ranks = [0]
    for axis in axes:
        ranks = [step * axis.stride + rank for step in range(axis.size) for rank in ranks]
    return ranks


@dataclass(frozen=True, slots=True)
class Crossing:
    """What an order of hosts sends over links that hosts share."""

    name: str
    """The arrangement: ``stages across racks``, ``replicas across racks``, ``name order``, the
    boxes of an order by boxes, or ``previous plan``."""
    uplink_bytes: float
    """Bytes a step over the busiest uplink of a switch, one direction."""
    exposed_seconds: float
    """Over all phases: exposed share x bytes over the fullest link / its rate."""
    chosen: bool


HEURISTIC_GAP = 0.5
"""A bound that is further away than this share says nothing about the order."""


@dataclass(frozen=True, slots=True)
class Proof:
    """How good the order of the hosts is, and what no order of these hosts can beat."""

    quality: Literal["optimal", "bounded", "heuristic"]
    """No order is better; none can expose much less; nobody knows."""
    exposed_seconds: float
    """Over shared links in a step."""
    bound_seconds: float
    """No order exposes less."""
    tie_seconds: float = 0.0
    """Orders that expose no more than this beyond the least are tied; bytes decide."""
    uplink_bytes: float = 0.0
    """Bytes a step over the busiest uplink of a switch."""
    bound_uplink_bytes: float = 0.0
    """No order that is tied sends fewer."""
    total_bytes: float = 0.0
    """Bytes a step over all uplinks."""
    bound_total_bytes: float = 0.0
    """No order that is tied sends fewer."""

    @property
    def gap(self) -> float:
        """Exposed beyond the bound and the tie, as a share of both; 0.0 where nothing is."""
        return _excess(self.exposed_seconds, self.bound_seconds + self.tie_seconds)

    @property
    def bytes_gap(self) -> float:
        """Bytes beyond their bound as a share of it: busiest uplink, or where that is met, all."""
        busiest = _excess(self.uplink_bytes, self.bound_uplink_bytes)
        return busiest or _excess(self.total_bytes, self.bound_total_bytes)

    @property
    def words(self) -> str:
        """``optimal (proved)``, ``within 3.2 % of the bound``, ``heuristic``.

        Or ``exposes least (proved)``, where the bytes of orders that are tied are what is open.
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
    """Beyond the bound as a share of it; what floating point adds is nothing."""
    if value <= bound * (1 + 1e-9):
        return 0.0
    return value / bound - 1 if bound else float("inf")


UNKNOWN = Proof("heuristic", 0.0, 0.0)


MeshName = Literal["dense", "expert"]


@dataclass(frozen=True, slots=True)
class Family:
    """The groups of one kind that a framework makes: those over ``axes`` of one of its meshes."""

    name: str
    """As the framework's users call it: ``tp``, ``dp-cp``, ``ep``."""
    mesh: MeshName
    axes: tuple[str, ...]
    column: bool = False
    """Whether a rank's place in its group is a coordinate, a column of the rank map."""


@dataclass(frozen=True)
class Placement:
    """rank -> (host, device), and the meshes that say what each rank is."""

    order: str
    dense: Mesh
    """Axes tp, cp, dp, pp in the framework's order; some of them in PARTS."""
    expert: Mesh
    """Equal to the dense sizes (etp = tp, ep = 1) for a model without experts."""
    families: tuple[Family, ...]
    hosts: tuple[Host, ...]
    """By node rank. rank = node rank x ranks_per_node + local rank."""
    ranks_per_node: int
    alternatives: tuple[Crossing, ...]
    proof: Proof = UNKNOWN
    devices: tuple[int, ...] = ()
    """Device of every local rank, the same on all hosts; empty: its own number."""

    @property
    def one_mesh(self) -> bool:
        """Whether experts have no mesh of their own: their groups are families of the dense one."""
        return self.expert is self.dense

    def host_of(self, rank: int) -> Host:
        """The host that ``rank`` runs on."""
        return self.hosts[rank // self.ranks_per_node]

    def mesh(self, name: MeshName) -> Mesh:
        """The mesh called ``name``."""
        return self.dense if name == "dense" else self.expert

    @cached_property
    def columns(self) -> dict[str, list[int]]:
        """Coordinate of every rank by column, in the order of the families."""
        shown = (one for one in self.families if one.column)
        return {one.name: places(self.mesh(one.mesh), one.axes) for one in shown}


def places(mesh: Mesh, names: tuple[str, ...]) -> list[int]:
    """By rank: its place in its group over the axes ``names``, the fastest of them first."""
    column, factor = [0] * mesh.world, 1
    for axis in mesh.over(*names):
        period = [step * factor for step in range(axis.size) for _ in range(axis.stride)]
        digits = period * (mesh.world // len(period))
        column = digits if factor == 1 else [a + b for a, b in zip(column, digits, strict=True)]
        factor *= axis.size
    return column
