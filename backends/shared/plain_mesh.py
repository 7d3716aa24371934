"""What frameworks with expert groups share: order of axes, expert mesh, columns of the map."""

from __future__ import annotations

from parc.compiler.ir import GroupFamily, Layout, Mesh

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
"""Fastest axis first, pipeline stages outermost."""


def ordered(order: str, sizes: dict[str, int]) -> Mesh:
    """The axes of ``sizes`` in ``order``; names that ``sizes`` lacks are passed over."""
    return Mesh.of(tuple((name, sizes[name]) for name in order.split("-") if name in sizes))


def expert_mesh(layout: Layout) -> Mesh:
    """Ranks of routed experts: axes tp (the expert tensor degree), ep, dp (its own), pp."""
    sizes = {"tp": layout.etp, "ep": layout.ep, "dp": layout.edp, "pp": layout.pp}
    return ordered(layout.order, sizes)


COLUMNS: tuple[GroupFamily, ...] = (
    GroupFamily("pp", "dense", ("pp",), column=True),
    GroupFamily("dp", "dense", ("dp",), column=True),
    GroupFamily("cp", "dense", ("cp",), column=True),
    GroupFamily("tp", "dense", ("tp",), column=True),
    GroupFamily("ep", "expert", ("ep",), column=True),
    GroupFamily("etp", "expert", ("tp",), column=True),
    GroupFamily("edp", "expert", ("dp",), column=True),
)
"""Groups along one axis; ``etp`` and ``edp`` are the axes tp and dp of the expert mesh."""
