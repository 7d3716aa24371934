"""Computed settings of Accelerate; fields.yaml refers to the functions by name.

None leaves the key out.
"""

from __future__ import annotations

from typing import Any

from parc.backends.shared.torch.program import dp_replicate, dp_shard
from parc.compiler.ir import Layout, Problem
from parc.compiler.topology.node_groups import ranks_per_node

CP_STRATEGIES = {"p2p": "alltoall", "all_gather": "allgather"}
"""``cp_comm`` -> Accelerate's strategy; torch's ``alltoall`` passes keys and values in a ring."""


def uses_deepspeed(problem: Problem) -> bool:
    """Return True if Accelerate starts DeepSpeed, which then decides the layout."""
    return problem.framework == "deepspeed"


def sharded(problem: Problem, layout: Layout) -> bool:
    """Return True if FSDP2 is used, that is, neither DDP nor DeepSpeed."""
    return layout.zero_stage > 0 and not uses_deepspeed(problem)


def distributed_type(problem: Problem, layout: Layout) -> str:
    """Return FSDP, DEEPSPEED, or MULTI_GPU for DDP."""
    if uses_deepspeed(problem):
        return "DEEPSPEED"
    return "FSDP" if sharded(problem, layout) else "MULTI_GPU"


def mixed_precision(problem: Problem, layout: Layout) -> str | None:
    """Return the number format; None with DeepSpeed.

    Accelerate stops if both its config and that of DeepSpeed set the format.
    """
    return None if uses_deepspeed(problem) else problem.job.precision


def deepspeed_file(problem: Problem, layout: Layout) -> str | None:
    """Return DeepSpeed's config relative to the output folder; launch.sh passes the full path."""
    return "deepspeed/ds_config.json" if uses_deepspeed(problem) else None


def deepspeed_launcher(problem: Problem, layout: Layout) -> str | None:
    """Return ``standard``: torchrun with static rendezvous on every host keeps the rank order."""
    return "standard" if uses_deepspeed(problem) else None


def zero3_init(problem: Problem, layout: Layout) -> bool | None:
    """Return True with ZeRO-3, for which transformers creates the model in shards."""
    return True if uses_deepspeed(problem) and layout.zero_stage == 3 else None


def machines(problem: Problem, layout: Layout) -> int:
    """Return the number of hosts."""
    return layout.world // ranks_per_node(problem.cluster.node.gpus, layout.world)


def processes(problem: Problem, layout: Layout) -> int:
    """Return the number of ranks of all hosts."""
    return layout.world


def fsdp_version(problem: Problem, layout: Layout) -> int | None:
    """Return 2, the only FSDP version that supports a ParallelismConfig."""
    return 2 if sharded(problem, layout) else None


def reshard(problem: Problem, layout: Layout) -> bool | None:
    """Return True for ZeRO-3, which frees gathered weights after the forward pass."""
    return layout.zero_stage == 3 if sharded(problem, layout) else None


def wrap_policy(problem: Problem, layout: Layout) -> str | None:
    """Return the policy with one FSDP unit per decoder layer.

    The model's ``_no_split_modules`` names the class of its layers.
    """
    return "TRANSFORMER_BASED_WRAP" if sharded(problem, layout) else None


def state_dict(problem: Problem, layout: Layout) -> str | None:
    """Return the checkpoint format with one file per rank."""
    return "SHARDED_STATE_DICT" if sharded(problem, layout) else None


def checkpointing(problem: Problem, layout: Layout) -> bool | None:
    """Return True if FSDP recomputes every layer in the backward pass."""
    return layout.recompute.granularity == "full" if sharded(problem, layout) else None


def gradient_checkpointing(problem: Problem, layout: Layout) -> bool:
    """Return True if train.py must enable recomputation, which DeepSpeed's plugin cannot."""
    return uses_deepspeed(problem) and layout.recompute.granularity == "full"


def replicate(problem: Problem, layout: Layout) -> int | None:
    """Return the number of replicas; None without FSDP2, which has no device mesh."""
    return dp_replicate(problem, layout) if sharded(problem, layout) else None


def shard(problem: Problem, layout: Layout) -> int | None:
    """Return the number of ranks over which one replica is sharded."""
    return dp_shard(problem, layout) if sharded(problem, layout) else None


def tp_size(problem: Problem, layout: Layout) -> int | None:
    """Return tp; the model's own ``tp_plan`` defines the split."""
    return layout.tp if sharded(problem, layout) else None


def cp_size(problem: Problem, layout: Layout) -> int | None:
    """Return cp."""
    return layout.cp if sharded(problem, layout) else None


def cp_strategy(problem: Problem, layout: Layout) -> str | None:
    """Return the strategy that exchanges keys and values between context-parallel ranks."""
    return CP_STRATEGIES[layout.cp_comm] if layout.cp > 1 and sharded(problem, layout) else None


def rope(problem: Problem, layout: Layout) -> dict[str, Any]:
    """Return the rotary position settings of ``LlamaConfig``."""
    position = problem.model.position
    base: dict[str, Any] = {"rope_theta": position.base, "rope_type": "default"}
    if position.scaling == "linear":
        return base | {"rope_type": "linear", "factor": position.scaling_factor}
    if position.scaling == "llama3":
        return base | {
            "rope_type": "llama3",
            "factor": position.scaling_factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": position.original_max_positions,
        }
    return base
