"""Flag values of optimizer and learning rate; None omits flags with Megatron's default value."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

EPSILON, SEED = 1e-8, 1234
"""Defaults of --adam-eps and --seed (megatron/training/arguments.py)."""


def decay_style(problem: Problem, layout: Layout) -> str:
    """Return Megatron's name of the learning-rate decay."""
    return {"wsd": "WSD"}.get(problem.job.lr_decay, problem.job.lr_decay)


def decay_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the step at which the decay ends; by default the last step."""
    job = problem.job
    return job.lr_decay_steps if job.lr_decay_steps != job.steps else None


def wsd_decay_style(problem: Problem, layout: Layout) -> str | None:
    """Return the shape of the final decay of WSD; Megatron's default is exponential."""
    return "linear" if problem.job.lr_decay == "wsd" else None


def wsd_decay_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the number of steps of the final decay of WSD."""
    return problem.job.wsd_decay_steps or None


def warmup_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the warmup steps, unless the spec has a fraction, which is a separate flag."""
    return problem.job.warmup_steps if problem.job.warmup_fraction is None else None


def adam_epsilon(problem: Problem, layout: Layout) -> float | None:
    """Return Adam's epsilon, which is added to the root of the second moment."""
    return problem.job.adam_epsilon if problem.job.adam_epsilon != EPSILON else None


def seed(problem: Problem, layout: Layout) -> int | None:
    """Return the seed of weights, dropout and data order."""
    return problem.job.seed if problem.job.seed != SEED else None
