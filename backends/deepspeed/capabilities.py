"""Versions and strategies of DeepSpeed that PARC supports."""

from __future__ import annotations

VERSIONS = ("0.16", "0.17", "0.18", "0.19", "0.19.6", "0.19.7", "0.19.8")
"""Releases on PyPI. Patches of 0.19 are separate entries from 0.19.6 on, because 0.19.7 and 0.19.8
removed keys; ``0.19`` means the patches before them."""
DEFAULT = "0.19.8"
"""Version that PARC uses if the spec sets none: the newest one."""
# A layout that needs a strategy without an entry is rejected; `parc backends` prints the entries.
STRATEGIES: dict[str, str] = {
    "dp": "world size / (tp x cp x pp)",
    "zero-1": "zero_optimization.stage 1",
    "zero-2": "zero_optimization.stage 2",
    "zero-3": "zero_optimization.stage 3",
    "tp": "tensor_parallel.autotp_size; pp > 1: the model axis of the topology",
    "cp-a2a": "sequence_parallel_size",
    "1f1b": "PipelineModule",
    "ep": "MoE(ep_size)",
    "etp": "MoE(enable_expert_tensor_parallelism)",
    "recompute-full": "activation_checkpointing",
    "offload-optimizer": "zero_optimization.offload_optimizer",
    "offload-parameters": "zero_optimization.offload_param",
    "zero-plus": "zero_optimization.zero_hpz_partition_size, zero_quantized_*",
}
"""Name of a strategy (backends/shared/strategies.py) -> key or class of DeepSpeed for it."""
