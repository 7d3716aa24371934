"""Functions that compute flags on the tokenizer, checkpoints, loggers and profiling.

A function that returns None or False omits the flag.
"""

from __future__ import annotations

from parc.backends.megatron.tokenizers import tokenizer_type
from parc.compiler.ir import Layout, Problem


def tokenizer_name(problem: Problem, layout: Layout) -> str:
    """Return Megatron's name for the type of the tokenizer."""
    return tokenizer_type(problem)


def saves_on_signal(problem: Problem, layout: Layout) -> bool:
    """Return True to save a checkpoint and stop on SIGTERM, if checkpoints are saved at all."""
    return problem.job.checkpoint_dir is not None


def saves_in_background(problem: Problem, layout: Layout) -> bool:
    """Return True if a background process writes checkpoints.

    Megatron ignores ``--async-save`` without ``--use-persistent-ckpt-worker``.
    """
    return problem.job.async_checkpoint and problem.job.checkpoint_dir is not None


def background_library(problem: Problem, layout: Layout) -> str | None:
    """Return "mcore", Megatron's own writer; None without a background process.

    The default, nvrx, needs the package nvidia-resiliency-ext.
    """
    return "mcore" if saves_in_background(problem, layout) else None


def run_name(problem: Problem, layout: Layout) -> str | None:
    """Return the name of the run in Weights & Biases, which Megatron requires; None without one."""
    return problem.name if problem.launch.wandb_project is not None else None


def wandb_folder(problem: Problem, layout: Layout) -> str | None:
    """Return the folder for the files of Weights & Biases; None without such a run.

    Megatron's default is below the folder for checkpoints, and fails if there is none.
    """
    own = problem.launch.wandb_project is not None and problem.job.checkpoint_dir is None
    return "wandb" if own else None


def records_cuda_profile(problem: Problem, layout: Layout) -> bool:
    """Return True if a CUDA profiler records some steps."""
    return problem.launch.profile is not None
