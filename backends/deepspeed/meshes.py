"""The two meshes that DeepSpeed lays over the ranks: pipe, data, model, the last one fastest.

Sources: deepspeed/runtime/pipe/topology.py, PipeModelDataParallelTopology (rank = (pipe x DP +
data) x MP + model); deepspeed/utils/groups.py, _init_tp_mesh_device (AutoTP: consecutive ranks),
_get_expert_parallel_ranks (experts: consecutive data-parallel ranks, a stride of tp apart);
deepspeed/__init__.py, initialize (data_parallel, sequence_parallel: consecutive ranks).
"""

from __future__ import annotations

from parc.backends.shared.plain_mesh import COLUMNS, DEFAULT_ORDER, expert_mesh
from parc.compiler.ir import GroupFamily, Layout, Mesh

ORDER = DEFAULT_ORDER
"""The one order that DeepSpeed has, fastest axis first."""


def meshes(layout: Layout) -> tuple[Mesh, Mesh]:
    """Dense mesh, with axes tp, cp, dp (or dp_shard, dp_replicate), pp, and expert mesh."""
    data: tuple[tuple[str, int], ...] = (("dp", layout.dp),)
    if layout.dp_replicate > 1:
        data = (("dp_shard", layout.dp_shard), ("dp_replicate", layout.dp_replicate))
    dense = Mesh.of((("tp", layout.tp), ("cp", layout.cp), *data, ("pp", layout.pp)))
    return dense, expert_mesh(layout)


FAMILIES: tuple[GroupFamily, ...] = (
    *COLUMNS,
    GroupFamily("dp-sp", "dense", ("cp", "dp")),
    GroupFamily("tp-pp", "dense", ("tp", "pp")),
)
"""Groups that DeepSpeed creates. ``cp`` is its sequence parallelism; ``dp-sp`` shares one state;
``tp-pp`` holds one copy of the model (PipelineParallelGrid.ds_model_proc_group)."""
