"""What Megatron-LM's command line can express (names of ``backends/strategies``)."""

from __future__ import annotations

STRATEGIES: dict[str, str] = {
    "dp": "world size / (tp x cp x pp)",
    "zero-1": "--use-distributed-optimizer",
    "hsdp": "--num-distributed-optimizer-instances",
    "tp": "--tensor-model-parallel-size",
    "sp": "--sequence-parallel",
    "cp-p2p": "--context-parallel-size",
    "cp-all-gather": "--cp-comm-type allgather",
    "cp-a2a": "--cp-comm-type a2a",
    "cp-hierarchical": "--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes",
    "1f1b": "--pipeline-model-parallel-size",
    "interleaved": "--num-virtual-stages-per-pipeline-rank",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
    "recompute-selective": "--recompute-granularity selective",
    "recompute-full": "--recompute-granularity full",
}
