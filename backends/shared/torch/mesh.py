"""The device mesh of PyTorch's own frameworks: fsdp, torchtitan and accelerate.

``init_device_mesh`` numbers ranks row-major over (pp, dp_replicate, dp_shard, cp, tp): tp is the
fastest. torchtitan lays expert parallelism over the fastest ranks of a pipeline stage and replica
(torchtitan 0.3.0, distributed/parallel_dims.py: the sparse mesh is pp, dp_replicate, efsdp, ep).
"""

from __future__ import annotations

from parc.compiler.ir import GroupFamily, Layout, Mesh

ORDER = "tp-cp-ep-dp-pp"
"""The one rank order, fastest axis first."""


def replicate_and_shard(layout: Layout) -> tuple[int, int]:
    """(dp_replicate, dp_shard) in the words of torch: at ZeRO stage 0 all ranks are replicas."""
    if layout.zero_stage == 0:
        return layout.dp, 1
    return layout.dp_replicate, layout.dp_shard


def meshes(layout: Layout) -> tuple[Mesh, Mesh]:
    """Dense and expert mesh; data parallelism always has both its axes.

    A single expert is never split: the expert mesh has tp 1 whatever the layout of dense layers.
    """
    replicate, shard = replicate_and_shard(layout)
    dense = (("tp", layout.tp), ("cp", layout.cp), ("dp_shard", shard))
    inner = shard * layout.cp * layout.tp
    expert = (("tp", 1), ("ep", layout.ep), ("dp_shard", max(inner // layout.ep, 1)))
    outer = (("dp_replicate", replicate), ("pp", layout.pp))
    return Mesh.of((*dense, *outer)), Mesh.of((*expert, *outer))


FAMILIES: dict[str, GroupFamily] = {
    family.name: family
    for family in (
        GroupFamily("pp", "dense", ("pp",), column=True),
        GroupFamily("dp-replicate", "dense", ("dp_replicate",), column=True),
        GroupFamily("dp-shard", "dense", ("dp_shard",), column=True),
        GroupFamily("cp", "dense", ("cp",), column=True),
        GroupFamily("tp", "dense", ("tp",), column=True),
        GroupFamily("ep", "expert", ("ep",), column=True),
        GroupFamily("efsdp", "expert", ("dp_shard",), column=True),
        GroupFamily("dp", "dense", ("dp_shard", "dp_replicate")),
        GroupFamily("dp-shard-cp", "dense", ("dp_shard", "cp")),
        GroupFamily("dp-cp", "dense", ("dp_shard", "dp_replicate", "cp")),
    )
}
"""Groups that the frameworks make, columns of the rank map first. ``dp-shard-cp`` shards the
weights (torchtitan: fsdp), ``efsdp`` those of experts, ``dp-cp`` averages the loss."""


def families(*names: str) -> tuple[GroupFamily, ...]:
    """The families called ``names``, in that order."""
    return tuple(FAMILIES[name] for name in names)
