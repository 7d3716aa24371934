"""Settings of Accelerate that are computed; one function a name of fields.yaml."""

from __future__ import annotations

from typing import Any

from parc.backends.shared.torch.program import dp_replicate, dp_shard
from parc.compiler.ir import Layout, Problem
from parc.compiler.topology.node_groups import ranks_per_node

CP_STRATEGIES = {"p2p": "alltoall", "all_gather": "allgather"}
"""How keys go round: torch's ``alltoall`` hands them on as a ring does."""


def plugs_deepspeed(problem: Problem) -> bool:
    """Whether DeepSpeed's engine trains: then the layout is bound by that framework."""
    return problem.framework == "deepspeed"


def sharded(problem: Problem, layout: Layout) -> bool:
    """Whether FSDP2 is used: everything but plain replicas and DeepSpeed."""
    return layout.zero_stage > 0 and not plugs_deepspeed(problem)


def distributed_type(problem: Problem, layout: Layout) -> str:
    """FSDP, DEEPSPEED, or MULTI_GPU for DDP."""
    if plugs_deepspeed(problem):
        return "DEEPSPEED"
    return "FSDP" if sharded(problem, layout) else "MULTI_GPU"


def mixed_precision(problem: Problem, layout: Layout) -> str | None:
    """The number format; beside a configuration of DeepSpeed, which says it, Accelerate stops."""
    return None if plugs_deepspeed(problem) else problem.job.precision


def deepspeed_file(problem: Problem, layout: Layout) -> str | None:
    """DeepSpeed's configuration, from the output folder; launch.sh says where that is."""
    return "deepspeed/ds_config.json" if plugs_deepspeed(problem) else None


def deepspeed_launcher(problem: Problem, layout: Layout) -> str | None:
    """A torchrun with a static rendezvous on every host, which keeps the order of the ranks."""
    return "standard" if plugs_deepspeed(problem) else None


def zero3_init(problem: Problem, layout: Layout) -> bool | None:
    """Whether transformers builds models in pieces: with ZeRO-3 no rank ever holds all of one."""
    return True if plugs_deepspeed(problem) and layout.zero_stage == 3 else None


def machines(problem: Problem, layout: Layout) -> int:
    """Hosts."""
    return layout.world // ranks_per_node(problem.cluster.node.gpus, layout.world)


def processes(problem: Problem, layout: Layout) -> int:
    """Ranks on all hosts together."""
    return layout.world


def fsdp_version(problem: Problem, layout: Layout) -> int | None:
    """FSDP2 is the one that goes with a ParallelismConfig."""
    return 2 if sharded(problem, layout) else None


def reshard(problem: Problem, layout: Layout) -> bool | None:
    """Whether weights are let go after the forward pass: ZeRO-3; at stage 2 they stay."""
    return layout.zero_stage == 3 if sharded(problem, layout) else None


def wrap_policy(problem: Problem, layout: Layout) -> str | None:
    """A unit a decoder layer; the model says which class that is (``_no_split_modules``)."""
    return "TRANSFORMER_BASED_WRAP" if sharded(problem, layout) else None


def state_dict(problem: Problem, layout: Layout) -> str | None:
    """A file a rank."""
    return "SHARDED_STATE_DICT" if sharded(problem, layout) else None


def checkpointing(problem: Problem, layout: Layout) -> bool | None:
    """Whether every layer runs forward again in the backward pass."""
    return layout.recompute.granularity == "full" if sharded(problem, layout) else None


def gradient_checkpointing(problem: Problem, layout: Layout) -> bool:
    """The same, asked of the model by train.py: DeepSpeed's plugin has no word for it."""
    return plugs_deepspeed(problem) and layout.recompute.granularity == "full"


def replicate(problem: Problem, layout: Layout) -> int | None:
    """Copies of the model's state; a mesh is only there beside FSDP2."""
    return dp_replicate(problem, layout) if sharded(problem, layout) else None


def shard(problem: Problem, layout: Layout) -> int | None:
    """Ranks that share one copy."""
    return dp_shard(problem, layout) if sharded(problem, layout) else None


def tp_size(problem: Problem, layout: Layout) -> int | None:
    """Tensor-parallel ranks, by the plan of the model itself (``tp_plan``)."""
    return layout.tp if sharded(problem, layout) else None


def cp_size(problem: Problem, layout: Layout) -> int | None:
    """Context-parallel ranks."""
    return layout.cp if sharded(problem, layout) else None


def cp_strategy(problem: Problem, layout: Layout) -> str | None:
    """How keys and values reach the other context ranks."""
    return CP_STRATEGIES[layout.cp_comm] if layout.cp > 1 and sharded(problem, layout) else None


def rope(problem: Problem, layout: Layout) -> dict[str, Any]:
    """Rotary positions as ``LlamaConfig`` reads them."""
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
