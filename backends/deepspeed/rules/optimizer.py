"""Family E: what DeepSpeed's schedules of the learning rate cannot say."""

from __future__ import annotations

from parc.backends.deepspeed.derived_optimizer import LEAST_WARMUP, SCHEDULERS
from parc.backends.shared.plain_rules import decay_rule
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _least_broken(problem: Problem, layout: Layout) -> bool:
    return problem.job.lr_decay == "linear" and problem.job.min_learning_rate > 0


def _least(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="DeepSpeed's linear decay, WarmupDecayLR, ends at 0",
        label=f"min_learning_rate {problem.job.min_learning_rate:g}, must be 0",
        help="legal: 0; or lr_decay cosine, which ends where it is told",
        fix="job.min_learning_rate: 0",
        causes=(Cause("job.lr_decay", "the decay is linear"),),
        targets=("deepspeed",),
    )


def _warmup_broken(problem: Problem, layout: Layout) -> bool:
    job = problem.job
    return job.warmup_steps < LEAST_WARMUP and not job.warmup_fraction


def _warmup(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"DeepSpeed's schedules warm up for {LEAST_WARMUP} steps at least",
        label=f"{problem.job.warmup_steps} < {LEAST_WARMUP}",
        help=f"legal: {LEAST_WARMUP} and more, or a share of the steps",
        fix=f"job.warmup_steps: {LEAST_WARMUP}",
        targets=("deepspeed",),
    )


OPTIMIZER_RULES: tuple[Rule, ...] = (
    decay_rule("deepspeed", tuple(SCHEDULERS)),
    Rule("E11", ("job.min_learning_rate", "job.lr_decay"), _least_broken, _least, ()),
    Rule("E11", ("job.warmup_steps",), _warmup_broken, _warmup, ()),
)
