"""The two meshes that DeepSpeed lays over the ranks: pipe, data, model, the last one fastest.

Sources: deepspeed/runtime/pipe/topology.py, PipeModelDataParallelTopology (rank = (pipe x DP +
data) x MP + model); deepspeed/utils/groups.py, _init_tp_mesh_device (AutoTP: consecutive ranks),
_get_expert_parallel_ranks (experts: consecutive data-parallel ranks, a stride of tp apart);
deepspeed/__init__.py, initialize (data_parallel, sequence_parallel: consecutive ranks).
"""

from __future__ import annotations

from parc.compiler.ir import Family, Layout, Mesh

ORDER = "tp-cp-ep-dp-pp"
"""The one order that DeepSpeed has, fastest axis first."""


def dense_mesh(layout: Layout) -> Mesh:
    """Ranks of all but routed experts: axes tp, cp, dp, pp."""
    data: tuple[tuple[str, int], ...] = (("dp", layout.dp),)
    if layout.dp_replicate > 1:
        data = (("dp_shard", layout.dp_shard), ("dp_replicate", layout.dp_replicate))
    return Mesh.of((("tp", layout.tp), ("cp", layout.cp), *data, ("pp", layout.pp)))


def expert_mesh(layout: Layout) -> Mesh:
    """Ranks of routed experts: axes tp (the expert tensor degree), ep, dp (its own), pp."""
    sizes = (("tp", layout.etp), ("ep", layout.ep), ("dp", layout.edp), ("pp", layout.pp))
    return Mesh.of(sizes)


FAMILIES: tuple[Family, ...] = (
    Family("pp", "dense", ("pp",), column=True),
    Family("dp", "dense", ("dp",), column=True),
    Family("cp", "dense", ("cp",), column=True),
    Family("tp", "dense", ("tp",), column=True),
    Family("ep", "expert", ("ep",), column=True),
    Family("etp", "expert", ("tp",), column=True),
    Family("edp", "expert", ("dp",), column=True),
    Family("dp-sp", "dense", ("cp", "dp")),
    Family("tp-pp", "dense", ("tp", "pp")),
)
"""Groups that DeepSpeed creates. ``cp`` is its sequence parallelism; ``dp-sp`` shares one state;
``tp-pp`` holds one copy of the model (PipelineParallelGrid.ds_model_proc_group)."""
