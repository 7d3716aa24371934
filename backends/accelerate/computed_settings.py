"""Functions that compute settings of Accelerate; fields.yaml refers to them by name.

A function that returns None leaves its setting out of the emitted file.
"""

from __future__ import annotations

from typing import Any

from parc.backends.shared.torch.program import dp_replicate, dp_shard
from parc.compiler.ir import Layout, Problem
from parc.compiler.topology.node_groups import ranks_per_node

CP_STRATEGIES = {"p2p": "alltoall", "all_gather": "allgather"}
"""``cp_comm`` -> Accelerate's strategy; torch's ``alltoall`` passes keys and values in a ring."""


def uses_deepspeed(problem: Problem) -> bool:
    """Return True if Accelerate starts DeepSpeed, whose backend then determines the layout."""
    return problem.framework == "deepspeed"


def uses_fsdp2(problem: Problem, layout: Layout) -> bool:
    """Return True if FSDP2 shards the model. Otherwise DDP or DeepSpeed trains the model."""
    return layout.zero_stage > 0 and not uses_deepspeed(problem)


def distributed_type(problem: Problem, layout: Layout) -> str:
    """Return Accelerate's name of the framework: "DEEPSPEED", "FSDP", or "MULTI_GPU" for DDP."""
    if uses_deepspeed(problem):
        return "DEEPSPEED"
    return "FSDP" if uses_fsdp2(problem, layout) else "MULTI_GPU"


def mixed_precision(problem: Problem, layout: Layout) -> str | None:
    """Return the number format in which the job computes; None with DeepSpeed.

    DeepSpeed's config contains the format. Accelerate fails if its own config contains it too.
    """
    return None if uses_deepspeed(problem) else problem.job.precision


def deepspeed_file(problem: Problem, layout: Layout) -> str | None:
    """Return the path of DeepSpeed's config below the output folder; None without DeepSpeed.

    Accelerate resolves this path from the current folder, so ``launch.sh`` also passes the absolute
    path on the command line.
    """
    return "deepspeed/ds_config.json" if uses_deepspeed(problem) else None


def deepspeed_launcher(problem: Problem, layout: Layout) -> str | None:
    """Return "standard", the launcher that keeps the rank order; None without DeepSpeed.

    With this launcher, Accelerate starts torchrun with a static rendezvous on every host.
    """
    return "standard" if uses_deepspeed(problem) else None


def zero3_init_flag(problem: Problem, layout: Layout) -> bool | None:
    """Return True with DeepSpeed at ZeRO stage 3, else None.

    The flag makes transformers create the model in shards.
    """
    return True if uses_deepspeed(problem) and layout.zero_stage == 3 else None


def host_count(problem: Problem, layout: Layout) -> int:
    """Return the number of hosts that the job runs on."""
    return layout.world // ranks_per_node(problem.cluster.node.gpus, layout.world)


def rank_count(problem: Problem, layout: Layout) -> int:
    """Return the number of ranks of the job on all hosts."""
    return layout.world


def fsdp_version(problem: Problem, layout: Layout) -> int | None:
    """Return 2 if FSDP2 shards the model, else None.

    Accelerate's ParallelismConfig does not support FSDP1.
    """
    # accelerate's commands/launch.py requires version 2 if a ParallelismConfig is used.
    return 2 if uses_fsdp2(problem, layout) else None


def reshard_after_forward(problem: Problem, layout: Layout) -> bool | None:
    """Return True if FSDP2 frees gathered weights after each forward pass (ZeRO-3).

    Return False if the weights stay gathered until the backward pass (ZeRO-2), and None if FSDP2 is
    not used.
    """
    return layout.zero_stage == 3 if uses_fsdp2(problem, layout) else None


def auto_wrap_policy(problem: Problem, layout: Layout) -> str | None:
    """Return the policy that makes each decoder layer an FSDP unit; None without FSDP2.

    Accelerate finds the class of the layers in the model's ``_no_split_modules``.
    """
    return "TRANSFORMER_BASED_WRAP" if uses_fsdp2(problem, layout) else None


def state_dict_type(problem: Problem, layout: Layout) -> str | None:
    """Return the checkpoint format in which each rank writes its own file; None without FSDP2."""
    return "SHARDED_STATE_DICT" if uses_fsdp2(problem, layout) else None


def activation_checkpointing(problem: Problem, layout: Layout) -> bool | None:
    """Return True if FSDP2 recomputes the activations of every layer; None without FSDP2."""
    return layout.recompute.granularity == "full" if uses_fsdp2(problem, layout) else None


def gradient_checkpointing(problem: Problem, layout: Layout) -> bool:
    """Return True if the emitted train.py itself must turn on recomputation.

    This is necessary with DeepSpeed, because Accelerate's DeepSpeed plugin has no setting for
    recomputation.
    """
    return uses_deepspeed(problem) and layout.recompute.granularity == "full"


def dp_replicate_size(problem: Problem, layout: Layout) -> int | None:
    """Return the number of replicas of the model; None without FSDP2.

    DDP and DeepSpeed build no device mesh and need no such setting.
    """
    return dp_replicate(problem, layout) if uses_fsdp2(problem, layout) else None


def dp_shard_size(problem: Problem, layout: Layout) -> int | None:
    """Return the number of ranks over which FSDP2 shards each replica; None without FSDP2."""
    return dp_shard(problem, layout) if uses_fsdp2(problem, layout) else None


def tp_size(problem: Problem, layout: Layout) -> int | None:
    """Return the tensor parallel size; None without FSDP2.

    The ``tp_plan`` of the model defines how tensor parallelism splits the layers.
    """
    return layout.tp if uses_fsdp2(problem, layout) else None


def cp_size(problem: Problem, layout: Layout) -> int | None:
    """Return the context parallel size; None, which omits the setting, without FSDP2."""
    return layout.cp if uses_fsdp2(problem, layout) else None


def cp_comm_strategy(problem: Problem, layout: Layout) -> str | None:
    """Return Accelerate's name of the communication of context parallelism, such as "allgather".

    Return None if cp is 1 or FSDP2 is not used.
    """
    return CP_STRATEGIES[layout.cp_comm] if layout.cp > 1 and uses_fsdp2(problem, layout) else None


def rope_parameters(problem: Problem, layout: Layout) -> dict[str, Any]:
    """Return the settings of rotary positions, with the names that ``LlamaConfig`` expects."""
    position = problem.model.position
    base: dict[str, Any] = {"rope_theta": position.base, "rope_type": "default"}
    if position.scaling == "linear":
        return base | {"rope_type": "linear", "factor": position.scaling_factor}
    if position.scaling == "llama3":
        return base | {
            "rope_type": "llama3",
            "factor": position.scaling_factor,
            # Llama 3.1 and later Llama 3 models use the same two factors.
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": position.original_max_positions,
        }
    return base
