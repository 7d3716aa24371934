"""The groups of a device mesh once more, from its sizes alone.

``init_device_mesh`` lays ranks out row-major: the coordinate along an axis is the rank divided by
the product of all faster sizes, modulo its own. A group is what shares the other coordinates. This
shares no code with the meshes of the placement, so that a mistake there cannot hide itself here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from parc.compiler.verify.derived_groups import Groups
from parc.compiler.verify.torch_sizes import TorchSizes

Shape = tuple[tuple[str, int], ...]
"""(axis, size), the slowest first."""
DENSE = {
    "pp": ("pp",),
    "dp-replicate": ("dp_replicate",),
    "dp-shard": ("dp_shard",),
    "cp": ("cp",),
    "tp": ("tp",),
    "dp": ("dp_replicate", "dp_shard"),
    "dp-shard-cp": ("dp_shard", "cp"),
    "dp-cp": ("dp_replicate", "dp_shard", "cp"),
}
SPARSE = {"ep": ("ep",), "efsdp": ("efsdp",)}
"""Family of the rank map -> axes of its groups."""
MADE = {
    "fsdp": (("dp-replicate", "dp-shard", "tp"), ("dp",)),
    "accelerate": (("dp-replicate", "dp-shard", "cp", "tp"), ("dp", "dp-shard-cp", "dp-cp")),
    "torchtitan": (
        ("pp", "dp-replicate", "dp-shard", "cp", "tp", "ep", "efsdp"),
        ("dp", "dp-shard-cp", "dp-cp"),
    ),
}
"""Framework -> families that are columns of its rank map, and the others that it makes."""


@dataclass(frozen=True, slots=True)
class Regenerated:
    """What a mesh must look like in a rank map."""

    order: str
    sizes: dict[str, int]
    families: dict[str, Groups]
    columns: tuple[str, ...]


def regenerate_mesh(sizes: TorchSizes) -> Regenerated:
    """The groups of every family that the framework of ``sizes`` makes."""
    inner = sizes.dp_shard * sizes.cp * sizes.tp
    outer = (("pp", sizes.pp), ("dp_replicate", sizes.dp_replicate))
    dense: Shape = (*outer, ("dp_shard", sizes.dp_shard), ("cp", sizes.cp), ("tp", sizes.tp))
    sparse: Shape = (*outer, ("efsdp", inner // sizes.ep), ("ep", sizes.ep))
    columns, others = MADE[sizes.framework]
    families = {
        name: _groups(dense, DENSE[name]) if name in DENSE else _groups(sparse, SPARSE[name])
        for name in (*columns, *others)
    }
    order = "-".join(("tp", "cp", "ep", "dp", "pp"))
    return Regenerated(order, {**dict(dense), "ep": sizes.ep}, families, columns)


def _groups(shape: Shape, axes: tuple[str, ...]) -> Groups:
    """Members of the group of rank 0, and the first rank of every group, both ascending."""
    steps = {
        axis: prod(size for _, size in shape[place + 1 :]) for place, (axis, _) in enumerate(shape)
    }

    def reached(inside: bool) -> list[int]:
        chosen = [(size, steps[axis]) for axis, size in shape if (axis in axes) is inside]
        walks = product(*(range(0, size * step, step) for size, step in chosen))
        return [sum(walk) for walk in walks]

    return Groups(reached(True), reached(False))
