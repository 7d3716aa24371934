"""Versions and strategies of DeepSpeed that PARC supports, and the variants that the search tries.

The variants are ZeRO stages and offload.
"""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.variants import apply_pins
from parc.compiler.ir import NO_OFFLOAD, LayoutVariant, Problem

VERSIONS = ("0.16", "0.17", "0.18", "0.19", "0.19.6", "0.19.7", "0.19.8")
"""Releases on PyPI. Patches of 0.19 are separate entries from 0.19.6 on, because 0.19.7 and 0.19.8
removed keys; ``0.19`` means the patches before them."""
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
_CPU = replace(NO_OFFLOAD, optimizer="cpu")
_ALL_CPU = replace(_CPU, parameters="cpu")
# ZeRO-0 is not tried, because ZeRO-1 communicates as many bytes per step and stores less.
STAGES = tuple(LayoutVariant(zero_stage=stage, cp_comm="a2a") for stage in (1, 2, 3))
LAST_RESORTS = (
    LayoutVariant(zero_stage=1, cp_comm="a2a", offload=_CPU, last_resort=True),
    LayoutVariant(zero_stage=2, cp_comm="a2a", offload=_CPU, last_resort=True),
    LayoutVariant(zero_stage=3, cp_comm="a2a", offload=_CPU, last_resort=True),
    LayoutVariant(zero_stage=3, cp_comm="a2a", offload=_ALL_CPU, last_resort=True),
)
"""Variants with offload, tried only if no layout fits with all state in GPU memory."""


def deepspeed_variants(problem: Problem) -> tuple[LayoutVariant, ...]:
    """Return the variants with ZeRO stages 1 to 3, then those that also offload to host memory.

    The variants with offload are left out if the spec sets ``layout.offload``.
    """
    offered = STAGES if problem.pins.offload is not None else STAGES + LAST_RESORTS
    return apply_pins(problem, offered)
