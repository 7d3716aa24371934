"""Settings of Accelerate that are computed; one function a name of fields.yaml."""

from __future__ import annotations

from typing import Any

from parc.backends.torch_mesh import replicate_and_shard
from parc.compiler.ir import Layout, Problem
from parc.compiler.topology.node_groups import ranks_per_node

CP_STRATEGIES = {"p2p": "alltoall", "all_gather": "allgather"}
"""How keys go round: torch's ``alltoall`` hands them on as a ring does."""


def sharded(layout: Layout) -> bool:
    """Whether FSDP2 is used: everything but plain replicas."""
    return layout.zero_stage > 0


def distributed_type(problem: Problem, layout: Layout) -> str:
    """FSDP, or MULTI_GPU for DDP."""
    del problem
    return "FSDP" if sharded(layout) else "MULTI_GPU"


def machines(problem: Problem, layout: Layout) -> int:
    """Hosts."""
    return layout.world // ranks_per_node(problem.cluster.node.gpus, layout.world)


def processes(problem: Problem, layout: Layout) -> int:
    """Ranks on all hosts together."""
    del problem
    return layout.world


def fsdp_version(problem: Problem, layout: Layout) -> int | None:
    """FSDP2 is the one that goes with a ParallelismConfig."""
    del problem
    return 2 if sharded(layout) else None


def reshard(problem: Problem, layout: Layout) -> bool | None:
    """Whether weights are let go after the forward pass: ZeRO-3; at stage 2 they stay."""
    del problem
    return layout.zero_stage == 3 if sharded(layout) else None


def wrap_policy(problem: Problem, layout: Layout) -> str | None:
    """A unit a decoder layer; the model says which class that is (``_no_split_modules``)."""
    del problem
    return "TRANSFORMER_BASED_WRAP" if sharded(layout) else None


def state_dict(problem: Problem, layout: Layout) -> str | None:
    """A file a rank."""
    del problem
    return "SHARDED_STATE_DICT" if sharded(layout) else None


def checkpointing(problem: Problem, layout: Layout) -> bool | None:
    """Whether every layer runs forward again in the backward pass."""
    del problem
    return layout.recompute.granularity == "full" if sharded(layout) else None


def replicate(problem: Problem, layout: Layout) -> int | None:
    """Copies of the model's state; a mesh is only there beside FSDP2."""
    del problem
    return replicate_and_shard(layout)[0] if sharded(layout) else None


def shard(problem: Problem, layout: Layout) -> int | None:
    """Ranks that share one copy."""
    del problem
    return replicate_and_shard(layout)[1] if sharded(layout) else None


def tp_size(problem: Problem, layout: Layout) -> int | None:
    """Tensor-parallel ranks, by the plan of the model itself (``tp_plan``)."""
    del problem
    return layout.tp if sharded(layout) else None


def cp_size(problem: Problem, layout: Layout) -> int | None:
    """Context-parallel ranks."""
    del problem
    return layout.cp if sharded(layout) else None


def cp_strategy(problem: Problem, layout: Layout) -> str | None:
    """How keys and values reach the other context ranks."""
    del problem
    return CP_STRATEGIES[layout.cp_comm] if layout.cp > 1 else None


def accumulation(problem: Problem, layout: Layout) -> int:
    """Micro-batches of one step on a rank."""
    return layout.micro_batches(problem.job.global_batch)


def data(problem: Problem, layout: Layout) -> list[str]:
    """Files of token ids; none: random tokens."""
    del layout
    return list(problem.job.data)


def checkpoint_dir(problem: Problem, layout: Layout) -> str:
    """Folder of checkpoints; empty: none are saved."""
    del layout
    return problem.job.checkpoint_dir or ""


def load_dir(problem: Problem, layout: Layout) -> str:
    """Folder to start from; empty: from scratch."""
    del layout
    return problem.job.load_dir or ""


def rope(problem: Problem, layout: Layout) -> dict[str, Any]:
    """Rotary positions as ``LlamaConfig`` reads them."""
    del layout
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
