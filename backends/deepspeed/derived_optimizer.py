"""Values of ``optimizer`` and ``scheduler`` in ds_config.json; None leaves a key out."""

from __future__ import annotations

from parc.compiler.ir import Layout, Problem

LEAST_WARMUP = 2
"""Steps that a warm-up has at least, whatever is asked (runtime/lr_schedules.py)."""
SCHEDULERS = {"cosine": "WarmupCosineLR", "linear": "WarmupDecayLR", "constant": "WarmupLR"}
"""``lr_decay`` -> the schedule with that decay; the plan has no other."""


def betas(problem: Problem, layout: Layout) -> list[float]:
    """Both decay rates of Adam."""
    return [problem.job.adam_beta1, problem.job.adam_beta2]


def scheduler(problem: Problem, layout: Layout) -> str:
    """One of DeepSpeed's own."""
    return SCHEDULERS[problem.job.lr_decay]


def total_steps(problem: Problem, layout: Layout) -> int | None:
    """Steps of the schedule; it needs more than its warm-up."""
    constant = problem.job.lr_decay == "constant"
    return None if constant else max(problem.job.lr_decay_steps, LEAST_WARMUP + 1)


def warmup_steps(problem: Problem, layout: Layout) -> int:
    """As planned; a share of a short run is less than DeepSpeed has at least."""
    return max(LEAST_WARMUP, problem.job.warmup_steps)


def warmup_peak(problem: Problem, layout: Layout) -> float | None:
    """The cosine takes the peak from the optimizer, the others have 0.001 by themselves."""
    return None if problem.job.lr_decay == "cosine" else problem.job.learning_rate


def least_ratio(problem: Problem, layout: Layout) -> float | None:
    """Rate at the end, as a share of the peak; the linear decay ends at 0."""
    job = problem.job
    cosine = job.lr_decay == "cosine"
    return float(f"{job.min_learning_rate / job.learning_rate:.12g}") if cosine else None
