"""DeepSpeed's process groups once more, from the sizes of its topology alone.

Ranks are counted through the axes pipe, data, sequence, model, the last one fastest, as
PipeModelDataParallelTopology does (deepspeed/runtime/pipe/topology.py); experts are slices of the
data-parallel groups, as in _get_expert_parallel_ranks (deepspeed/utils/groups.py). Nothing here is
shared with the meshes of the placement, so that a mistake there cannot hide itself here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from parc.compiler.verify.derived_groups import Groups

COLUMNS = ("pp", "dp", "cp", "tp", "ep", "etp", "edp")
"""Families of a single axis: the columns of the rank map."""
Coordinate = tuple[int, ...]
"""pipe, data, sequence, model."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Sizes of the axes."""

    pipe: int
    data: int
    sequence: int
    model: int
    expert: int
    expert_model: int

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.pipe * self.data * self.sequence * self.model

    @property
    def experts_ranks(self) -> int:
        """Ranks that hold all experts once."""
        return self.expert * self.expert_model

    def sizes(self) -> dict[str, int]:
        """By the names of the rank map."""
        dense = {"pp": self.pipe, "dp": self.data, "cp": self.sequence, "tp": self.model}
        replicas = self.world // (self.pipe * self.experts_ranks)
        return dense | {"ep": self.expert, "etp": self.expert_model, "edp": replicas}


def regenerate(topology: Topology) -> dict[str, Groups]:
    """The groups of every family that the rank map shows."""
    shape = (topology.pipe, topology.data, topology.sequence, topology.model)
    places = list(product(*map(range, shape)))
    dense: dict[str, Callable[[Coordinate], tuple[int, ...]]] = {
        "pp": lambda at: (at[1], at[2], at[3]),
        "dp": lambda at: (at[0], at[2], at[3]),
        "cp": lambda at: (at[0], at[1], at[3]),
        "tp": lambda at: (at[0], at[1], at[2]),
        "dp-sp": lambda at: (at[0], at[3]),
        "tp-pp": lambda at: (at[1], at[2]),
    }
    found = {name: _spans(_by(places, key)) for name, key in dense.items()}
    return found | _experts(topology)


def _by(places: list[Coordinate], key: Callable[[Coordinate], tuple[int, ...]]) -> list[list[int]]:
    """Ranks whose coordinates agree in what ``key`` keeps."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(places):
        groups.setdefault(key(place), []).append(rank)
    return list(groups.values())


def _experts(topology: Topology) -> dict[str, Groups]:
    """Slices of ``expert`` ranks of every data-parallel group; replicas across the slices."""
    step, size = topology.expert_model, topology.expert
    stage = topology.world // topology.pipe
    lanes = [
        list(range(start + lane, start + stage, step))
        for start in range(0, topology.world, stage)
        for lane in range(step)
    ]
    experts = [lane[at : at + size] for lane in lanes for at in range(0, len(lane), size)]
    replicas = [lane[at::size] for lane in lanes for at in range(size)]
    tensor = [list(range(at, at + step)) for at in range(0, topology.world, step)]
    return {"ep": _spans(experts), "edp": _spans(replicas), "etp": _spans(tensor)}


def _spans(groups: list[list[int]]) -> Groups:
    """Equal groups as offsets and bases, ascending."""
    ordered = sorted(groups)
    first = ordered[0]
    return Groups([rank - first[0] for rank in first], [group[0] for group in ordered])
