"""Independent derivation of DeepSpeed's process groups from the sizes of its topology.

Ranks are counted through the axes pipe, data, sequence, model, the last one fastest, as
PipeModelDataParallelTopology does (deepspeed/runtime/pipe/topology.py); expert groups are slices of
the data-parallel groups, as in _get_expert_parallel_ranks (deepspeed/utils/groups.py). No code is
shared with the meshes of the placement, so that a mistake there cannot hide itself here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from parc.backends.verifier import FamilyGroups
from parc.compiler.ir.frozen import frozen

COLUMNS = ("pp", "dp", "cp", "tp", "ep", "etp", "edp")
"""Types of groups that span a single axis; each is a column of the rank map."""
Coordinate = tuple[int, ...]
"""Position of a rank along the axes pipe, data, sequence and model."""


@frozen
class DeepSpeedTopology:
    """Sizes of the axes of DeepSpeed's topology, in ranks."""

    pipe: int
    data: int
    sequence: int
    model: int
    expert: int
    expert_model: int
    has_experts: bool = False
    """True if the model has expert layers; DeepSpeed's AutoTP then does not split the weights."""

    @property
    def world(self) -> int:
        """Number of ranks in the job."""
        return self.pipe * self.data * self.sequence * self.model

    @property
    def expert_copy_ranks(self) -> int:
        """Number of ranks that together store one copy of all experts."""
        return self.expert * self.expert_model

    def sizes(self) -> dict[str, int]:
        """Return the size of each axis by the name of its column in the rank map."""
        dense = {"pp": self.pipe, "dp": self.data, "cp": self.sequence, "tp": self.model}
        replicas = self.world // (self.pipe * self.expert_copy_ranks)
        return dense | {"ep": self.expert, "etp": self.expert_model, "edp": replicas}


def derive_groups(topology: DeepSpeedTopology) -> dict[str, FamilyGroups]:
    """Return the process groups of every type in the rank map, computed from ``topology``."""
    # itertools.product varies the last axis fastest, like ProcessTopology's row-major ranks.
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
    found = {name: _compact_groups(_group_ranks_by(places, key)) for name, key in dense.items()}
    return found | _expert_groups(topology)


def _group_ranks_by(
    places: list[Coordinate], key: Callable[[Coordinate], tuple[int, ...]]
) -> list[list[int]]:
    """Return groups of ranks; two ranks are in the same group if they have equal ``key`` values.

    ``places`` contains the coordinate of each rank, in rank order. ``key`` is a function of this
    coordinate.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(places):
        groups.setdefault(key(place), []).append(rank)
    return list(groups.values())


def _expert_groups(topology: DeepSpeedTopology) -> dict[str, FamilyGroups]:
    """Return the groups ep, edp and etp of the experts.

    An ep group is a slice of a data-parallel group, with ``topology.expert`` ranks. An edp group
    contains the ranks at the same position of all these slices. An etp group contains
    ``topology.expert_model`` consecutive ranks.
    """
    step, size = topology.expert_model, topology.expert
    stage = topology.world // topology.pipe
    # A row has the ranks of one stage with the same position in the tensor-parallel groups; expert
    # groups are consecutive ranks of a row.
    rows = [
        list(range(start + position, start + stage, step))
        for start in range(0, topology.world, stage)
        for position in range(step)
    ]
    experts = [row[at : at + size] for row in rows for at in range(0, len(row), size)]
    replicas = [row[at::size] for row in rows for at in range(size)]
    tensor = [list(range(at, at + step)) for at in range(0, topology.world, step)]
    return {
        "ep": _compact_groups(experts),
        "edp": _compact_groups(replicas),
        "etp": _compact_groups(tensor),
    }


def _compact_groups(groups: list[list[int]]) -> FamilyGroups:
    """Return (rank offsets within a group, first ranks of all groups), two sorted lists.

    All ``groups`` must have the same rank offsets.
    """
    ordered = sorted(groups)
    first = ordered[0]
    return FamilyGroups([rank - first[0] for rank in first], [group[0] for group in ordered])
