"""Summary that ``parc compile`` prints for a service."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.formatting import gib, plural, quantity, round_tree, seconds
from parc.compiler.report.text.layout_text import format_serving_layout, format_stage


def serving_summary(plan: ServingPlan) -> str:
    """Return six lines: plan, layout, memory, cache, latencies and search."""
    estimate, limits, search = plan.estimate, plan.limits, plan.search
    stage = min(plan.stages, key=lambda one: one.blocks)
    dropped = sum(count for _, count in search.dropped)
    rows = (
        ("plan", f"{plan.problem.name}: {describe_service(plan)}"),
        ("layout", format_serving_layout(plan.layout)),
        (
            "memory",
            f"{gib(stage.weights_bytes)} weights, {gib(stage.overhead_bytes)} activations and "
            f"graphs, {gib(stage.cache_bytes)} KV cache on the fullest GPU"
            f"{format_stage(stage.stage, len(plan.stages))}",
        ),
        (
            "cache",
            f"{quantity(limits.cache_tokens, ' tokens')} per data-parallel rank, enough for "
            f"{limits.full_requests:.1f} requests of {limits.max_model_len:,} tokens",
        ),
        (
            "latency",
            f"TTFT {seconds(estimate.ttft_seconds)}, TPOT {seconds(estimate.tpot_seconds)}, "
            f"{quantity(estimate.tokens_per_second, ' tokens/s')} (estimates)",
        ),
        ("search", f"{search.enumerated:,} layouts, {dropped:,} rejected by rules or goals"),
    )
    return "".join(f"{name:<9} {text}\n" for name, text in rows)


def describe_service(plan: ServingPlan) -> str:
    """Return model, GPUs, hosts and engine as text."""
    problem, hosts = plan.problem, len(plan.placement.hosts)
    return (
        f"{problem.model.name} on {plan.layout.gpus:,} x {problem.cluster.gpu.name}, "
        f"{plural(hosts, 'host')}, for {problem.framework}"
    )


def serving_summary_document(plan: ServingPlan) -> dict[str, Any]:
    """Return the summary as JSON types."""
    estimate = plan.estimate
    document = {
        "name": plan.problem.name,
        "model": plan.problem.model.name,
        "gpu": plan.problem.cluster.gpu.name,
        "hosts": len(plan.placement.hosts),
        "world": plan.layout.gpus,
        "layout": as_json(plan.layout),
        "limits": as_json(plan.limits),
        "ttft_seconds": estimate.ttft_seconds,
        "tpot_seconds": estimate.tpot_seconds,
        "tokens_per_second": estimate.tokens_per_second,
        "max_concurrency": estimate.max_concurrency,
    }
    return dict(round_tree(document))
