"""Functions that compute settings shared by fsdp, torchtitan and accelerate.

Each ``fields.yaml`` refers to them by name.
"""

from __future__ import annotations

from parc.backends.shared.torch.mesh import replicate_and_shard_sizes
from parc.compiler.ir import Layout, Problem


def dp_replicate(problem: Problem, layout: Layout) -> int:
    """Return the number of replicas of the sharded model."""
    return replicate_and_shard_sizes(layout)[0]


def dp_shard(problem: Problem, layout: Layout) -> int:
    """Return the number of ranks over which one replica is sharded."""
    return replicate_and_shard_sizes(layout)[1]


def gradient_accumulation_steps(problem: Problem, layout: Layout) -> int:
    """Return the number of micro-batches per step and rank."""
    return layout.micro_batches(problem.job.global_batch)


def data_files(problem: Problem, layout: Layout) -> list[str]:
    """Return the paths of the files with token ids.

    If there are none, the program trains on random tokens.
    """
    return list(problem.job.data)


def checkpoint_dir(problem: Problem, layout: Layout) -> str:
    """Return the folder for checkpoints; "" means that no checkpoint is saved."""
    return problem.job.checkpoint_dir or ""


def load_dir(problem: Problem, layout: Layout) -> str:
    """Return the folder of the checkpoint that training starts from; "" means from scratch."""
    return problem.job.load_dir or ""
