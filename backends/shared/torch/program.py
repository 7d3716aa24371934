"""What the programs and modules of torch's frameworks are told alike: functions for fields.yaml."""

from __future__ import annotations

from parc.backends.shared.torch.mesh import replicate_and_shard
from parc.compiler.ir import Layout, Problem


def dp_replicate(problem: Problem, layout: Layout) -> int:
    """Copies of the model's state."""
    return replicate_and_shard(layout)[0]


def dp_shard(problem: Problem, layout: Layout) -> int:
    """Ranks that share one copy."""
    return replicate_and_shard(layout)[1]


def accumulation(problem: Problem, layout: Layout) -> int:
    """Micro-batches of one step on a rank."""
    return layout.micro_batches(problem.job.global_batch)


def data(problem: Problem, layout: Layout) -> list[str]:
    """Files of token ids; none: random tokens."""
    return list(problem.job.data)


def checkpoint_dir(problem: Problem, layout: Layout) -> str:
    """Folder of checkpoints; empty: none are saved."""
    return problem.job.checkpoint_dir or ""


def load_dir(problem: Problem, layout: Layout) -> str:
    """Folder to start from; empty: from scratch."""
    return problem.job.load_dir or ""
