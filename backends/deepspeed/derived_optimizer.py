"""Computed values of ``optimizer`` and ``scheduler`` in ds_config.json; None omits a key."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

MIN_WARMUP_STEPS = 2
"""Shortest warm-up in steps; DeepSpeed replaces smaller values by 2 (runtime/lr_schedules.py)."""
SCHEDULERS = {"cosine": "WarmupCosineLR", "linear": "WarmupDecayLR", "constant": "WarmupLR"}
"""``job.lr_decay`` -> DeepSpeed's scheduler; PARC rejects other decays (E11)."""


def betas(problem: Problem, layout: Layout) -> list[float]:
    """Return [beta1, beta2] of the Adam optimizer."""
    return [problem.job.adam_beta1, problem.job.adam_beta2]


def scheduler_class(problem: Problem, layout: Layout) -> str:
    """Return the class name of DeepSpeed's learning-rate scheduler for ``job.lr_decay``."""
    return SCHEDULERS[problem.job.lr_decay]


def total_steps(problem: Problem, layout: Layout) -> int | None:
    """Return the length of the learning-rate schedule in steps; None for a constant rate.

    The length always exceeds the shortest warm-up that DeepSpeed supports.
    """
    # WarmupLR has no end, so its constructor has no total_num_steps.
    constant = problem.job.lr_decay == "constant"
    return None if constant else max(problem.job.lr_decay_steps, MIN_WARMUP_STEPS + 1)


def warmup_steps(problem: Problem, layout: Layout) -> int:
    """Return the number of warm-up steps, at least ``MIN_WARMUP_STEPS``.

    The spec can set a shorter warm-up, for example as a fraction of a short run.
    """
    return max(MIN_WARMUP_STEPS, problem.job.warmup_steps)


def warmup_peak_rate(problem: Problem, layout: Layout) -> float | None:
    """Return the learning rate at the end of the warm-up; None for cosine decay.

    The cosine scheduler uses the learning rate of the optimizer. The other schedulers would use
    0.001 without this key (deepspeed/runtime/lr_schedules.py).
    """
    return None if problem.job.lr_decay == "cosine" else problem.job.learning_rate


def min_learning_rate_ratio(problem: Problem, layout: Layout) -> float | None:
    """Return the final learning rate divided by the peak rate; None unless the decay is a cosine.

    Linear decay always ends at 0.
    """
    job = problem.job
    cosine = job.lr_decay == "cosine"
    # 12 digits, so that the emitted value is 0.1 rather than 0.09999999999999999
    return float(f"{job.min_learning_rate / job.learning_rate:.12g}") if cosine else None
