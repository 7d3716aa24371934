"""Head of the page: the plan in a few key figures."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir import AnyPlan, Plan, ServingPlan
from parc.compiler.ir.estimate import STEP_BAND
from parc.compiler.report.formatting import gib, percent, quantity, seconds
from parc.compiler.report.text.layout_text import format_layout, format_serving_layout
from parc.compiler.report.text.serving_summary import describe_service
from parc.compiler.report.text.summary import describe_job, format_placement


class Card(NamedTuple):
    """Key figure: its name, its value, and a note."""

    name: str
    value: str
    note: str


class Head(NamedTuple):
    """Name, subject, layout and key figures of a plan."""

    name: str
    subject: str
    layout: str
    cards: tuple[Card, ...]


def page_head(plan: AnyPlan) -> Head:
    """Return the head of a plan."""
    problem = plan.problem
    version = problem.version(problem.framework)
    if isinstance(plan, ServingPlan):
        text = f"{describe_service(plan)} {version}"
        return Head(problem.name, text, format_serving_layout(plan.layout), _serving(plan))
    text = f"{describe_job(plan)}, for {problem.framework} {version}"
    return Head(problem.name, text, format_layout(plan.layout), _training(plan))


def _training(plan: Plan) -> tuple[Card, ...]:
    estimate, job = plan.estimate, plan.problem.job
    step, peak = estimate.time.total_seconds, estimate.peak
    gpu = plan.problem.cluster.gpu.memory_bytes
    low, high = seconds(step * (1 - STEP_BAND)), seconds(step * (1 + STEP_BAND))
    batch = f"{job.global_batch:,} sequences of {job.sequence_length:,} tokens"
    flops = f"{quantity(estimate.model_flops_per_step, 'FLOP')} per step"
    free = percent(1 - peak.total_bytes / gpu)
    required = percent(plan.problem.goals.memory_headroom)
    verdict = {"fits": "fits", "close": "may not fit", "exceeds": "does not fit"}[estimate.verdict]
    return (
        Card("step time (estimate)", seconds(step), f"{low} to {high}; {batch}"),
        Card("MFU", percent(estimate.mfu), flops),
        Card("throughput", quantity(estimate.tokens_per_second, " tokens/s"), job.precision),
        Card(
            f"memory of stage {peak.stage}",
            gib(peak.total_bytes),
            f"{gib(peak.low_bytes)} to {gib(peak.high_bytes)} of {gib(gpu)}: {verdict}",
        ),
        Card("memory headroom", free, f"goal: at least {required}"),
        Card("placement", plan.placement.proof.quality, format_placement(plan)),
    )


def _serving(plan: ServingPlan) -> tuple[Card, ...]:
    estimate, limits, goals = plan.estimate, plan.limits, plan.problem.goals
    return (
        Card(
            "time to first token", seconds(estimate.ttft_seconds), _format_limit(goals.ttft_seconds)
        ),
        Card("time per token", seconds(estimate.tpot_seconds), _format_limit(goals.tpot_seconds)),
        Card(
            "output",
            quantity(estimate.tokens_per_second, " tokens/s"),
            f"{quantity(estimate.tokens_per_second_per_gpu, ' tokens/s')} per GPU",
        ),
        Card(
            "KV cache",
            quantity(limits.cache_tokens, " tokens"),
            f"per data parallel rank, enough for {limits.full_requests:.1f} requests of "
            f"{limits.max_model_len:,} tokens",
        ),
        Card(
            "max concurrent requests",
            f"{estimate.max_concurrency:,.0f}",
            "in all engines, at their mean length",
        ),
        Card("engines", f"{plan.layout.replicas:,}", f"of {plan.layout.engine_gpus:,} GPUs each"),
    )


def _format_limit(limit_seconds: float | None) -> str:
    return "no limit set" if limit_seconds is None else f"limit {seconds(limit_seconds)}"
