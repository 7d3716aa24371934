"""Sections of plan.json that are specific to services."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.ir.serving_plan import Service

LAYOUT_TOTALS = ("engine_gpus", "gpus", "rank_gpus")
LIMIT_TOTALS = ("cache_tokens", "full_requests")
ESTIMATE_TOTALS = ("kv_tokens", "tokens_per_second_per_gpu")
"""Derived values that the file contains in addition to the fields of the IR types."""


def serving_parts(plan: ServingPlan) -> dict[str, Any]:
    """Return the sections of plan.json that training jobs lack or write differently."""
    return {
        "layout": {**as_json(plan.layout), **_derived(plan.layout, LAYOUT_TOTALS)},
        "limits": {**as_json(plan.limits), **_derived(plan.limits, LIMIT_TOTALS)},
        "stages": [{**as_json(stage), "blocks": stage.blocks} for stage in plan.stages],
        "estimate": serving_estimate(plan),
        "search": {**as_json(plan.search), "dropped": dict(plan.search.dropped)},
    }


def service_document(service: Service) -> dict[str, Any]:
    """Return the service as JSON types, with the name of the engine in place of its constants."""
    document: dict[str, Any] = as_json(service)
    return {**document, "setup": {**document["setup"], "engine": service.setup.engine.name}}


def serving_estimate(plan: ServingPlan) -> dict[str, Any]:
    """Return the estimate with its totals, without the layout, which has its own section."""
    estimate = as_json(plan.estimate)
    del estimate["layout"]
    decode = {**estimate["decode"], "total_seconds": plan.estimate.decode.total_seconds}
    return {**estimate, **_derived(plan.estimate, ESTIMATE_TOTALS), "decode": decode}


def _derived(ir_object: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(ir_object, name) for name in names}
