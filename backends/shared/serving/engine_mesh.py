"""Device mesh of the ranks of an engine."""

from __future__ import annotations

from parc.backends.shared.expert_mesh import mesh_in_order
from parc.compiler.ir import Mesh, ServingLayout


def engine_mesh(layout: ServingLayout, order: str) -> Mesh:
    """Return the device mesh of all ranks of ``layout``.

    ``order`` lists the axes tp, cp, pp, dp and replica separated by dashes, the fastest axis first.
    Only pcp, the size of the axis cp, adds ranks; dcp reuses the ranks of tp.
    """
    sizes = {"tp": layout.tp, "cp": layout.pcp, "pp": layout.pp, "dp": layout.dp}
    return mesh_in_order(order, {**sizes, "replica": layout.replicas})
