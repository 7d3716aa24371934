"""Values of flags of optimizer and learning rate. What is Megatron's own default is left out."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

EPSILON, SEED = 1e-8, 1234
"""Defaults of --adam-eps and --seed (megatron/training/arguments.py)."""


def decay_style(problem: Problem, layout: Layout) -> str:
    """In Megatron's words."""
    return {"wsd": "WSD"}.get(problem.job.lr_decay, problem.job.lr_decay)


def decay_steps(problem: Problem, layout: Layout) -> int | None:
    """Where the decay ends; by itself that is the end of the run."""
    job = problem.job
    return job.lr_decay_steps if job.lr_decay_steps != job.steps else None


def wsd_decay_style(problem: Problem, layout: Layout) -> str | None:
    """The fall at the end; Megatron's own choice is exponential."""
    return "linear" if problem.job.lr_decay == "wsd" else None


def wsd_decay_steps(problem: Problem, layout: Layout) -> int | None:
    """Length of that fall."""
    return problem.job.wsd_decay_steps or None


def warmup_steps(problem: Problem, layout: Layout) -> int | None:
    """Where the user said steps; a fraction has a flag of its own."""
    return problem.job.warmup_steps if problem.job.warmup_fraction is None else None


def adam_epsilon(problem: Problem, layout: Layout) -> float | None:
    """Beside the root of the second moment."""
    return problem.job.adam_epsilon if problem.job.adam_epsilon != EPSILON else None


def seed(problem: Problem, layout: Layout) -> int | None:
    """Of weights, dropout and the order of the data."""
    return problem.job.seed if problem.job.seed != SEED else None
