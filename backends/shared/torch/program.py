"""Values that the emitted files of all torch frameworks share: functions that fields.yaml names."""

from __future__ import annotations

from parc.backends.shared.torch.mesh import replicate_and_shard
from parc.compiler.ir import Layout, Problem


def dp_replicate(problem: Problem, layout: Layout) -> int:
    """Return the number of copies of the model state."""
    return replicate_and_shard(layout)[0]


def dp_shard(problem: Problem, layout: Layout) -> int:
    """Return the number of ranks that share one copy of the model state."""
    return replicate_and_shard(layout)[1]


def accumulation(problem: Problem, layout: Layout) -> int:
    """Return the micro-batches per step and rank."""
    return layout.micro_batches(problem.job.global_batch)


def data(problem: Problem, layout: Layout) -> list[str]:
    """Return the files of token ids; empty for random tokens."""
    return list(problem.job.data)


def checkpoint_dir(problem: Problem, layout: Layout) -> str:
    """Return the folder of checkpoints; empty if none are saved."""
    return problem.job.checkpoint_dir or ""


def load_dir(problem: Problem, layout: Layout) -> str:
    """Return the folder of the initial checkpoint; empty to start from random weights."""
    return problem.job.load_dir or ""
