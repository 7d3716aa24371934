"""plan.json and parc.lock of a job that serves."""

from __future__ import annotations

from typing import Any

from parc import __version__
from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.cluster_json import cluster_document, out_of_use
from parc.compiler.report.numbers import rounded_tree

FORMAT = 1
LAYOUT_TOTALS = ("engine_gpus", "gpus", "rank_gpus")
LIMIT_TOTALS = ("cache_tokens", "full_requests")
ESTIMATE_TOTALS = ("kv_tokens", "tokens_per_second_per_gpu")
"""Derived figures that the file writes beside the fields of its nouns."""


def serving_plan_document(plan: ServingPlan) -> dict[str, Any]:
    """The plan as JSON types: hosts by name, derived figures spelled out, floats rounded."""
    problem = as_json(plan.problem)
    problem["cluster"] = cluster_document(plan.problem.cluster)
    document = {
        "format": FORMAT,
        "parc": __version__,
        "problem": problem,
        "layout": {**as_json(plan.layout), **_derived(plan.layout, LAYOUT_TOTALS)},
        "limits": {**as_json(plan.limits), **_derived(plan.limits, LIMIT_TOTALS)},
        "stages": [{**as_json(stage), "blocks": stage.blocks} for stage in plan.stages],
        "estimate": serving_estimate(plan),
        "placement": _placement(plan),
        "search": {**as_json(plan.search), "dropped": dict(plan.search.dropped)},
    }
    return dict(rounded_tree(document))


def serving_lock_document(plan: ServingPlan) -> dict[str, Any]:
    """The decisions under ``decisions``; the rest says what they were made from."""
    document = {
        "format": FORMAT,
        "parc": __version__,
        "name": plan.problem.name,
        "spec_digest": plan.problem.digest,
        "decisions": {
            "versions": dict(plan.problem.versions),
            "layout": as_json(plan.layout),
            "limits": as_json(plan.limits),
            "order": plan.placement.order,
            "ranks_per_node": plan.placement.ranks_per_node,
            "hosts": [host.name for host in plan.placement.hosts],
            **out_of_use(plan.problem.cluster),
        },
    }
    return dict(rounded_tree(document))


def serving_estimate(plan: ServingPlan) -> dict[str, Any]:
    """The estimate without the layout, which stands beside it, and with its totals."""
    estimate = as_json(plan.estimate)
    del estimate["layout"]
    decode = {**estimate["decode"], "total_seconds": plan.estimate.decode.total_seconds}
    return {**estimate, **_derived(plan.estimate, ESTIMATE_TOTALS), "decode": decode}


def _derived(noun: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(noun, name) for name in names}


def _placement(plan: ServingPlan) -> dict[str, Any]:
    placement = plan.placement
    return {
        "order": placement.order,
        "ranks_per_node": placement.ranks_per_node,
        "dense": as_json(placement.dense.axes),
        "hosts": [host.name for host in placement.hosts],
    }
