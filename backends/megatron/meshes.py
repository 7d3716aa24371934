"""Megatron's device meshes for dense layers and experts, with rank orders and process groups.

Source: megatron/core/parallel_state.py, ``RankGenerator`` and ``initialize_model_parallel``.
"""

from __future__ import annotations

from parc.backends.shared.expert_mesh import COLUMNS, DEFAULT_ORDER, expert_mesh, mesh_in_order
from parc.compiler.ir import GroupFamily, Layout, Mesh

# Rank = tp + TP (cp + CP (dp + DP pp)) in the default order; no other order can be set on the
# command line.
ORDERS = (DEFAULT_ORDER, "tp-cp-ep-pp-dp")
"""Rank orders, fastest axis first. The first is the default; ``--use-tp-pp-dp-mapping`` selects the
second; other orders have no flag."""


def megatron_meshes(layout: Layout) -> tuple[Mesh, Mesh]:
    """Return (mesh of attention, dense layers and embeddings; mesh of the experts).

    The first mesh has the axes tp, cp, dp and pp. With hierarchical context parallelism, an
    all-to-all axis and a ring axis replace cp. The all-to-all axis varies faster
    (``create_hierarchical_groups``). If ranks share weights, the axes gtp, right after tp, and
    dp_shard replace dp (``_inject_gtp_remat_axis``).
    """
    sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp}
    order = layout.order
    if layout.cp_a2a > 1:
        sizes |= {"cp_a2a": layout.cp_a2a, "cp_p2p": layout.cp_p2p}
        # Level 0 of create_hierarchical_groups has adjacent ranks: it is the all-to-all level.
        order = order.replace("cp", "cp_a2a-cp_p2p")
    if layout.gtp > 1:
        sizes |= {"gtp": layout.gtp, "dp_shard": layout.dp // layout.gtp}
        order = order.replace("tp", "tp-gtp", 1).replace("dp", "dp_shard")
    return mesh_in_order(order, sizes), expert_mesh(layout)


FAMILIES: tuple[GroupFamily, ...] = (
    *COLUMNS,
    GroupFamily("dp-cp", "dense", ("dp", "cp")),
    GroupFamily("tp-cp", "dense", ("tp", "cp")),
    GroupFamily("tp-pp", "dense", ("tp", "gtp", "pp")),
    GroupFamily("tp-dp", "dense", ("tp", "dp")),
    GroupFamily("tp-dp-cp", "dense", ("tp", "dp", "cp")),
    GroupFamily("etp-ep", "expert", ("tp", "ep")),
    GroupFamily("etp-ep-pp", "expert", ("tp", "ep", "pp")),
)
"""Types of process groups that Megatron always creates."""

HIERARCHY: tuple[GroupFamily, ...] = (
    GroupFamily("cp-a2a", "dense", ("cp_a2a",)),
    GroupFamily("cp-p2p", "dense", ("cp_p2p",)),
)
"""Types of process groups that ``--hierarchical-context-parallel-sizes`` adds."""


SHARED_WEIGHTS: tuple[GroupFamily, ...] = (
    GroupFamily("gtp", "dense", ("gtp",), column=True),
    GroupFamily("dp-shard", "dense", ("dp_shard",), column=True),
    GroupFamily("dp-shard-cp", "dense", ("dp_shard", "cp")),
)
SHARED_EXPERTS: tuple[GroupFamily, ...] = (
    GroupFamily("egtp", "expert", ("gtp",), column=True),
    GroupFamily("edp-shard", "expert", ("dp_shard",), column=True),
    GroupFamily("etp-ep-egtp-pp", "expert", ("tp", "ep", "gtp", "pp")),
)
"""Types of process groups that ``--tensor-parallel-num-weight-shards`` and
``--expert-tensor-parallel-num-weight-shards`` add. The groups of the other types that contain dp
then span gtp too, because each of its ranks trains on other data. Ranks of dp-shard-cp and
edp-shard store the same weights and reduce the gradients of a step."""


def megatron_group_families(layout: Layout) -> tuple[GroupFamily, ...]:
    """Return the families of process groups that Megatron creates for ``layout``."""
    hierarchy = HIERARCHY if layout.cp_a2a > 1 else ()
    shared = SHARED_WEIGHTS if layout.gtp > 1 else ()
    return FAMILIES + hierarchy + shared + (SHARED_EXPERTS if layout.egtp > 1 else ())
