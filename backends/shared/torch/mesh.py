"""Device mesh of fsdp, torchtitan and accelerate.

``init_device_mesh`` numbers ranks row-major over (pp, dp_replicate, dp_shard, cp, tp), so tp varies
fastest. In torchtitan the expert mesh covers the same ranks with the axes pp, dp_replicate, efsdp
and ep, so that ep varies fastest (torchtitan 0.3.0, distributed/parallel_dims.py).
"""

from __future__ import annotations

from parc.compiler.ir import GroupFamily, Layout, Mesh

ORDER = "tp-cp-ep-dp-pp"
"""The only rank order of these frameworks, fastest axis first."""


def replicate_and_shard_sizes(layout: Layout) -> tuple[int, int]:
    """Return (number of replicas, number of shards per replica): torch's dp_replicate and dp_shard.

    At ZeRO stage 0 each data-parallel rank is a replica, so dp_shard is 1.
    """
    if layout.zero_stage == 0:
        return layout.dp, 1
    return layout.dp_replicate, layout.dp_shard


def dense_and_expert_mesh(layout: Layout) -> tuple[Mesh, Mesh]:
    """Return (device mesh of the dense layers, device mesh of the experts).

    Each mesh has the axes dp_replicate and dp_shard. In the expert mesh the size of tp is always 1,
    because torchtitan never splits a single expert.
    """
    replicate, shard = replicate_and_shard_sizes(layout)
    # Fastest axis first: init_device_mesh lists the axes the other way round.
    dense = (("tp", layout.tp), ("cp", layout.cp), ("dp_shard", shard))
    inner = shard * layout.cp * layout.tp
    # efsdp = dp_shard x cp x tp / ep. A layout with an indivisible ep is rejected by D16, not here.
    expert = (("tp", 1), ("ep", layout.ep), ("dp_shard", max(inner // layout.ep, 1)))
    outer = (("dp_replicate", replicate), ("pp", layout.pp))
    return Mesh.from_sizes((*dense, *outer)), Mesh.from_sizes((*expert, *outer))


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
"""Process groups of these frameworks, those with a column in the rank map first. Weights are
sharded over ``dp-shard-cp`` (torchtitan: fsdp), expert weights over ``efsdp``; the loss is averaged
over ``dp-cp``."""


def families_with_names(*names: str) -> tuple[GroupFamily, ...]:
    """Return the families of process groups whose names are ``names``, in the same order."""
    return tuple(FAMILIES[name] for name in names)
