"""Device meshes and process groups of DeepSpeed: axes pipe, data, model, with model fastest.

Sources: deepspeed/runtime/pipe/topology.py, PipeModelDataParallelTopology (rank = (pipe x DP +
data) x MP + model); deepspeed/utils/groups.py, _init_tp_mesh_device (AutoTP: consecutive ranks),
_get_expert_parallel_ranks (experts: consecutive data-parallel ranks, with stride tp);
deepspeed/__init__.py, initialize (data_parallel, sequence_parallel: consecutive ranks).
"""

from __future__ import annotations

from parc.backends.shared.expert_mesh import COLUMNS, DEFAULT_ORDER, expert_mesh
from parc.compiler.ir import GroupFamily, Layout, Mesh

ORDER = DEFAULT_ORDER
"""DeepSpeed's only rank order, fastest axis first."""


def deepspeed_meshes(layout: Layout) -> tuple[Mesh, Mesh]:
    """Return the mesh of the dense layers and the mesh of the experts, fastest axis first.

    The dense axes are tp, cp, dp and pp. If ``dp_replicate`` is above 1, the two axes dp_shard and
    dp_replicate replace dp.
    """
    data: tuple[tuple[str, int], ...] = (("dp", layout.dp),)
    if layout.dp_replicate > 1:
        data = (("dp_shard", layout.dp_shard), ("dp_replicate", layout.dp_replicate))
    dense = Mesh.from_sizes((("tp", layout.tp), ("cp", layout.cp), *data, ("pp", layout.pp)))
    return dense, expert_mesh(layout)


FAMILIES: tuple[GroupFamily, ...] = (
    *COLUMNS,
    GroupFamily("dp-sp", "dense", ("cp", "dp")),
    GroupFamily("tp-pp", "dense", ("tp", "pp")),
)
"""Types of process groups in DeepSpeed. ``cp`` is sequence parallelism (Ulysses). ZeRO shards over
``dp-sp``. The ranks of a ``tp-pp`` group hold one copy of the model
(PipelineParallelGrid.ds_model_proc_group)."""
