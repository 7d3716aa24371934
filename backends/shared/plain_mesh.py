"""Rank order, expert mesh and rank map columns of frameworks with expert groups."""

from __future__ import annotations

from parc.compiler.ir import GroupFamily, Layout, Mesh

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
"""Fastest axis first, pipeline stages outermost."""


def order_axes(order: str, sizes: dict[str, int]) -> Mesh:
    """Return a mesh with the axes of ``sizes`` in ``order``, which may name further axes."""
    return Mesh.of(tuple((name, sizes[name]) for name in order.split("-") if name in sizes))


def expert_mesh(layout: Layout) -> Mesh:
    """Return the mesh of the routed experts, with axes tp (size etp), ep, dp (size edp) and pp."""
    sizes = {"tp": layout.etp, "ep": layout.ep, "dp": layout.edp, "pp": layout.pp}
    return order_axes(layout.order, sizes)


COLUMNS: tuple[GroupFamily, ...] = (
    GroupFamily("pp", "dense", ("pp",), column=True),
    GroupFamily("dp", "dense", ("dp",), column=True),
    GroupFamily("cp", "dense", ("cp",), column=True),
    GroupFamily("tp", "dense", ("tp",), column=True),
    GroupFamily("ep", "expert", ("ep",), column=True),
    GroupFamily("etp", "expert", ("tp",), column=True),
    GroupFamily("edp", "expert", ("dp",), column=True),
)
"""Groups along single axes; ``etp`` and ``edp`` are the axes tp and dp of the expert mesh."""
