"""The two meshes that Megatron lays over the ranks, and the orders it knows.

Source: megatron/core/parallel_state.py, ``RankGenerator`` and ``initialize_model_parallel``.
"""

from __future__ import annotations

from parc.compiler.ir import Family, Layout, Mesh

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
ORDERS = (DEFAULT_ORDER, "tp-cp-ep-pp-dp")
"""The second one is what ``--use-tp-pp-dp-mapping`` asks for; no third can be reached."""


def dense_mesh(layout: Layout) -> Mesh:
    """Ranks of attention, dense layers and embeddings: axes tp, cp, dp, pp."""
    sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    return Mesh.of(_ordered(layout.order, sizes))


def expert_mesh(layout: Layout) -> Mesh:
    """Ranks of routed experts: axes tp (the expert tensor degree), ep, dp (its own), pp."""
    sizes = {"tp": layout.etp, "ep": layout.ep, "dp": layout.edp, "pp": layout.pp}
    return Mesh.of(_ordered(layout.order, sizes))


def _ordered(order: str, sizes: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """(name, size) pairs in ``order``; names that the mesh lacks are passed over."""
    return tuple((name, sizes[name]) for name in order.split("-") if name in sizes)


FAMILIES: tuple[Family, ...] = (
    Family("pp", "dense", ("pp",), column=True),
    Family("dp", "dense", ("dp",), column=True),
    Family("cp", "dense", ("cp",), column=True),
    Family("tp", "dense", ("tp",), column=True),
    Family("ep", "expert", ("ep",), column=True),
    Family("etp", "expert", ("tp",), column=True),
    Family("edp", "expert", ("dp",), column=True),
    Family("dp-cp", "dense", ("dp", "cp")),
    Family("tp-cp", "dense", ("tp", "cp")),
    Family("tp-pp", "dense", ("tp", "pp")),
    Family("tp-dp", "dense", ("tp", "dp")),
    Family("tp-dp-cp", "dense", ("tp", "dp", "cp")),
    Family("etp-ep", "expert", ("tp", "ep")),
    Family("etp-ep-pp", "expert", ("tp", "ep", "pp")),
)
"""Groups that Megatron creates."""
