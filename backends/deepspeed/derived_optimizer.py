"""Computed values of ``optimizer`` and ``scheduler`` in ds_config.json; None leaves a key out."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

MIN_WARMUP_STEPS = 2
"""Shortest warm-up in steps; DeepSpeed raises smaller values to it (runtime/lr_schedules.py)."""
SCHEDULERS = {"cosine": "WarmupCosineLR", "linear": "WarmupDecayLR", "constant": "WarmupLR"}
"""``lr_decay`` -> DeepSpeed's scheduler with this decay; other decays violate E11."""


def betas(problem: Problem, layout: Layout) -> list[float]:
    """Return beta1 and beta2 of Adam."""
    return [problem.job.adam_beta1, problem.job.adam_beta2]


def scheduler(problem: Problem, layout: Layout) -> str:
    """Return the class name of DeepSpeed's scheduler."""
    return SCHEDULERS[problem.job.lr_decay]


def total_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the length of the schedule in steps, which must exceed the shortest warm-up."""
    constant = problem.job.lr_decay == "constant"
    return None if constant else max(problem.job.lr_decay_steps, MIN_WARMUP_STEPS + 1)


def warmup_steps(problem: Problem, layout: Layout) -> int:
    """Return the warm-up steps, at least ``MIN_WARMUP_STEPS``.

    A warm-up given as a fraction of a short run can be shorter.
    """
    return max(MIN_WARMUP_STEPS, problem.job.warmup_steps)


def warmup_peak(problem: Problem, layout: Layout) -> float | None:
    """Return the peak learning rate; None for the cosine, which uses the optimizer's rate.

    The other schedulers default to 0.001 (runtime/lr_schedules.py).
    """
    return None if problem.job.lr_decay == "cosine" else problem.job.learning_rate


def min_ratio(problem: Problem, layout: Layout) -> float | None:
    """Return the final rate as a fraction of the peak; None for linear decay, which ends at 0."""
    job = problem.job
    cosine = job.lr_decay == "cosine"
    return float(f"{job.min_learning_rate / job.learning_rate:.12g}") if cosine else None
