"""Strategies (``backends/shared/strategies.py``) that DeepSpeed supports, with key or class."""

from __future__ import annotations

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
