"""Device mesh and process groups of the ranks of engines."""

from __future__ import annotations

from parc.backends.shared.expert_mesh import mesh_in_order
from parc.compiler.ir import GroupFamily, Mesh, ServingLayout


def engine_mesh(layout: ServingLayout, order: str) -> Mesh:
    """Return the device mesh of all ranks of ``layout``.

    ``order`` lists the axes tp, cp, pp, dp and replica separated by dashes, the fastest axis first.
    Only pcp, the size of the axis cp, adds ranks; dcp reuses the ranks of tp.
    """
    sizes = {"tp": layout.tp, "cp": layout.pcp, "pp": layout.pp, "dp": layout.dp}
    return mesh_in_order(order, {**sizes, "replica": layout.replicas})


def engine_families(has_expert_groups: bool) -> tuple[GroupFamily, ...]:
    """Return one family of process groups per axis of ``engine_mesh``, and that of the experts.

    Each family is a column of the rank map. The groups of the family ``ep`` contain all ranks of a
    pipeline stage of an engine.
    """
    axes = ("replica", "dp", "pp", "cp", "tp")
    families = [GroupFamily(axis, "dense", (axis,), column=True) for axis in axes]
    if has_expert_groups:
        families.append(GroupFamily("ep", "dense", ("tp", "cp", "dp"), column=True))
    return tuple(families)
