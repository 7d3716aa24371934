"""Rules on learning-rate schedules that DeepSpeed cannot express (E11)."""

from __future__ import annotations

from parc.backends.deepspeed.derived_optimizer import MIN_WARMUP_STEPS, SCHEDULERS
from parc.backends.shared.common_rules import decay_rule, only_value_rules
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def _violates_min_learning_rate(problem: Problem, layout: Layout) -> bool:
    return problem.job.lr_decay == "linear" and problem.job.min_learning_rate > 0


def _explain_min_learning_rate(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="DeepSpeed's linear decay (WarmupDecayLR) always ends at 0",
        label=f"min_learning_rate {problem.job.min_learning_rate:g}, must be 0",
        help="valid min_learning_rate: 0; with lr_decay cosine any value",
        fix="job.min_learning_rate: 0",
        causes=(Cause("job.lr_decay", "lr_decay is linear"),),
        targets=("deepspeed",),
    )


def _violates_min_warmup(problem: Problem, layout: Layout) -> bool:
    job = problem.job
    return job.warmup_steps < MIN_WARMUP_STEPS and not job.warmup_fraction


def _explain_min_warmup(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"DeepSpeed's schedules warm up for at least {MIN_WARMUP_STEPS} steps",
        label=f"warmup_steps {problem.job.warmup_steps}, must be at least {MIN_WARMUP_STEPS}",
        help=f"valid warmup_steps: {MIN_WARMUP_STEPS} or more; or set warmup_fraction instead",
        fix=f"job.warmup_steps: {MIN_WARMUP_STEPS}",
        targets=("deepspeed",),
    )


OPTIMIZER_RULES: tuple[Rule, ...] = (
    decay_rule("deepspeed", tuple(SCHEDULERS)),
    *only_value_rules("deepspeed"),
    Rule(
        "E11",
        ("job.min_learning_rate", "job.lr_decay"),
        _violates_min_learning_rate,
        _explain_min_learning_rate,
        (),
    ),
    Rule("E11", ("job.warmup_steps",), _violates_min_warmup, _explain_min_warmup, ()),
)
