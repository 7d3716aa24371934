"""Texts and JSON documents on a disaggregated service: those of each pool, and of both together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan, ServingPlan
from parc.compiler.ir.serialize import as_json
from parc.compiler.ir.serving import POOLS
from parc.compiler.ir.serving_plan import PoolPair
from parc.compiler.report.formatting import (
    format_seconds,
    format_three_digits,
    round_floats_in_tree,
)


def texts_of_pools(plan: ServingPlan, text_of: Callable[[ServingPlan], str]) -> str:
    """Return the text of each pool, one after the other."""
    return "\n".join(map(text_of, plan.pools))


def documents_of_pools(
    plan: ServingPlan, pair: PoolPair, document_of: Callable[[ServingPlan], dict[str, Any]]
) -> dict[str, Any]:
    """Return the JSON document of each pool, and the figures of both together."""
    prefill, decode = map(document_of, plan.pools)
    whole = {
        "name": pair.name,
        "request_rate": pair.request_rate,
        "occupied_gpus": plan.occupied_gpus,
        "simulated": as_json(pair.simulated),
    }
    return {**dict(round_floats_in_tree(whole)), "prefill": prefill, "decode": decode}


def layout_options(plan: AnyPlan) -> tuple[str, str]:
    """Return (options, path): the spec path of the layout of ``plan``, for ``--set``.

    ``options`` are options of the command that must come first; they start with a blank if there
    are any. The layout of a pool is in ``job.disaggregate``, which true or auto may stand for.
    """
    pool = plan.problem.service.setup.pool if isinstance(plan, ServingPlan) else "both"
    job = json.loads(plan.problem.spec_json or "{}").get("job", {})
    if pool == "both" or not job.get("disaggregate"):
        return "", "layout"
    is_mapping = isinstance(job["disaggregate"], dict)
    options = "" if is_mapping else " --set job.disaggregate={}"
    return options, f"job.disaggregate.{pool}.layout"


def merged_search(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of ``parc search`` for two pools as one for a single search.

    The key ``pool`` of a candidate names its pool. The rejected layouts of both pools are added.
    """
    if "prefill" not in document:
        return document
    searches = {pool: document[pool] for pool in POOLS}
    dropped: dict[str, dict[str, Any]] = {}
    for one in searches.values():
        for row in one["dropped"]:
            count = dropped.get(row["code"], {"count": 0})["count"] + row["count"]
            dropped[row["code"]] = {**row, "count": count}
    return {
        "enumerated": sum(one["enumerated"] for one in searches.values()),
        "dropped": list(dropped.values()),
        "candidates": [
            {"pool": pool, **row} for pool, one in searches.items() for row in one["candidates"]
        ],
    }


def service_rows(plan: ServingPlan, pair: PoolPair) -> tuple[tuple[str, str], ...]:
    """Return the rows of the summary that describe both pools together."""
    parts = " + ".join(f"{one.layout.gpus:,}" for one in plan.pools)
    found = pair.simulated
    latency = ""
    if found is not None:
        ttft, tpot = found.ttft_seconds, found.tpot_seconds
        latency = (
            f"TTFT p50 {format_seconds(ttft.p50)}, p99 {format_seconds(ttft.p99)}; "
            f"TPOT p50 {format_seconds(tpot.p50)}, p99 {format_seconds(tpot.p99)}"
        )
    return (
        (
            "service",
            f"{pair.name}: {format_three_digits(pair.request_rate)} requests/s on "
            f"{format_count(plan.occupied_gpus, 'GPU')} (engines of the pools: {parts})",
        ),
        ("latency", latency and f"{latency} (simulation of both pools in sequence)"),
        ("compared", pair.comparison),
    )
