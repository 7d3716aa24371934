"""Functions that compute flags of optimizer and learning rate; None omits a flag."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

EPSILON, SEED = 1e-8, 1234
"""Megatron's defaults of --adam-eps and --seed (megatron/training/arguments.py)."""


def decay_style(problem: Problem, layout: Layout) -> str:
    """Return Megatron's name of the learning-rate decay, such as "cosine" or "WSD"."""
    return {"wsd": "WSD"}.get(problem.job.lr_decay, problem.job.lr_decay)


def decay_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the step at which the learning-rate decay ends; None for the last step of the job."""
    job = problem.job
    return job.lr_decay_steps if job.lr_decay_steps != job.steps else None


def wsd_decay_style(problem: Problem, layout: Layout) -> str | None:
    """Return "linear", the shape of the final decay of a WSD schedule; None for other schedules.

    Megatron's default shape is exponential.
    """
    # In a spec, the final decay of WSD is linear for every framework.
    return "linear" if problem.job.lr_decay == "wsd" else None


def wsd_decay_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the length of the final decay of a WSD schedule in steps; None for other schedules."""
    return problem.job.wsd_decay_steps or None


def warmup_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the number of warm-up steps.

    None if the spec sets a fraction instead, for which Megatron has another flag.
    """
    return problem.job.warmup_steps if problem.job.warmup_fraction is None else None


def adam_epsilon(problem: Problem, layout: Layout) -> float | None:
    """Return Adam's epsilon, which is added to the denominator; None for Megatron's default."""
    return problem.job.adam_epsilon if problem.job.adam_epsilon != EPSILON else None


def seed(problem: Problem, layout: Layout) -> int | None:
    """Return the seed of weights, dropout and data order; None for Megatron's default."""
    return problem.job.seed if problem.job.seed != SEED else None
