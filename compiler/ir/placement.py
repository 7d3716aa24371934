"""Which rank is which: mesh coordinates, groups, host and device of every rank."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir.cluster import Host


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
        members = _span([axis for axis in self.axes if axis.name in names])
        bases = _span([axis for axis in self.axes if axis.name not in names])
        return [[base + member for member in members] for base in bases]


def _span(axes: list[Axis]) -> list[int]:
    """Ranks reached from rank 0 along ``axes``, the first axis fastest."""
    ranks = [0]
    for axis in axes:
        ranks = [step * axis.stride + rank for step in range(axis.size) for rank in ranks]
    return ranks


@dataclass(frozen=True, slots=True)
class Crossing:
    """What the chosen placement sends over rack uplinks, beside an alternative."""

    name: str
    """The arrangement: ``stages across racks``, ``replicas across racks``, ``name order``."""
    uplink_bytes: float
    """Bytes a step over the busiest rack uplink, one direction."""
    exposed_seconds: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """rank -> (host, device), and the meshes that say what each rank is."""

    order: str
    dense: Mesh
    expert: Mesh
    """Equal to the dense sizes (etp = tp, ep = 1) for a model without experts."""
    hosts: tuple[Host, ...]
    """By node rank. rank = node rank x ranks_per_node + local rank."""
    ranks_per_node: int
    alternatives: tuple[Crossing, ...]

    def host_of(self, rank: int) -> Host:
        """The host that ``rank`` runs on."""
        return self.hosts[rank // self.ranks_per_node]


DENSE_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("tp", ("tp",)),
    ("cp", ("cp",)),
    ("dp", ("dp",)),
    ("pp", ("pp",)),
    ("dp-cp", ("dp", "cp")),
    ("tp-cp", ("tp", "cp")),
    ("tp-pp", ("tp", "pp")),
    ("tp-dp", ("tp", "dp")),
    ("tp-dp-cp", ("tp", "dp", "cp")),
)
"""Groups of the dense mesh that Megatron creates: name -> axes."""

EXPERT_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("etp", ("tp",)),
    ("ep", ("ep",)),
    ("edp", ("dp",)),
    ("etp-ep", ("tp", "ep")),
    ("etp-ep-pp", ("tp", "ep", "pp")),
)
"""Groups of the expert mesh: name -> axes, in the expert mesh's own axis names."""
