"""Rank order, expert mesh and rank map columns of frameworks that have a separate expert mesh."""

from __future__ import annotations

from parc.compiler.ir import GroupFamily, Layout, Mesh

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
"""Default rank order: tp varies fastest, pp slowest."""


def mesh_in_order(order: str, sizes: dict[str, int]) -> Mesh:
    """Return a device mesh whose axes have the sizes in ``sizes`` and the order in ``order``.

    ``sizes`` maps the name of each axis to its size. ``order`` lists names of axes separated by
    dashes, the fastest axis first; names that are not in ``sizes`` are skipped.
    """
    return Mesh.from_sizes(tuple((name, sizes[name]) for name in order.split("-") if name in sizes))


def expert_mesh(layout: Layout) -> Mesh:
    """Return the device mesh of the routed experts.

    Its axes are tp with the size etp, ep, dp with the size edp, and pp. If ranks share the weights
    of an expert, the axes gtp, right after ep, and dp_shard replace dp.
    """
    sizes = {"tp": layout.etp, "ep": layout.ep, "dp": layout.edp, "pp": layout.pp}
    order = layout.order
    if layout.egtp > 1:
        sizes |= {"gtp": layout.egtp, "dp_shard": layout.edp // layout.egtp}
        order = order.replace("ep", "ep-gtp").replace("dp", "dp_shard")
    return mesh_in_order(order, sizes)


COLUMNS: tuple[GroupFamily, ...] = (
    GroupFamily("pp", "dense", ("pp",), column=True),
    GroupFamily("dp", "dense", ("dp",), column=True),
    GroupFamily("cp", "dense", ("cp",), column=True),
    GroupFamily("tp", "dense", ("tp",), column=True),
    GroupFamily("ep", "expert", ("ep",), column=True),
    GroupFamily("etp", "expert", ("tp",), column=True),
    GroupFamily("edp", "expert", ("dp",), column=True),
)
"""Process groups along single axes, which are the columns of the rank map. ``etp`` and ``edp`` are
the axes tp and dp of the expert mesh."""
