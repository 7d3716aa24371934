"""Tables of ``parc estimate`` for training: memory, step time, traffic and network levels."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from parc.compiler.ir import AnyPlan, Cluster, Estimate, ServingPlan, StageMemory
from parc.compiler.ir.estimate import STAGE_TOTALS
from parc.compiler.ir.serialize import as_json
from parc.compiler.report.estimate_basis import basis_document, estimate_basis
from parc.compiler.report.formatting import (
    GIB,
    format_percent,
    format_quantity,
    format_range,
    format_seconds,
    format_without_exponent,
    round_floats_in_tree,
    table,
)
from parc.compiler.report.text.layout_text import format_layout
from parc.compiler.report.text.pools_text import documents_of_pools, texts_of_pools
from parc.compiler.report.text.run_text import run_table
from parc.compiler.report.text.serving_tables import (
    format_calibration,
    serving_estimate_document,
    serving_estimate_text,
    simulated_pair_text,
)
from parc.compiler.report.text.summary import format_placement
from parc.compiler.topology.tree import tree_levels

INSIDE = {"device": "GPU", "nvlink_domain": "NVLink domain"}
"""Network level -> name of this level in the table. All other levels keep their names."""


def network_levels_text(cluster: Cluster) -> str:
    """Return a table of the cluster's network levels, innermost first, one row per level.

    The title states the number and speed of the NICs per host.
    """
    node = cluster.node
    rows = [
        (
            INSIDE.get(level.name, level.name),
            f"{level.gpus:,}",
            format_without_exponent(level.gb_per_s_per_gpu),
            f"{level.latency_seconds * 1e6:.3g} us" if level.latency_seconds else "-",
            f"{level.oversubscription:g}" if level.latency_seconds else "-",
        )
        for level in tree_levels(cluster)
    ]
    numa = f", {len(set(node.gpu_numa))} NUMA nodes" if node.gpu_numa else ""
    head = ("level", "GPUs", "GB/s per GPU", "latency", "oversubscription")
    title = f"Cluster levels ({node.nics} NICs of {node.nic_gbps:g} Gb/s per host{numa})\n"
    return title + table(head, rows)


def cluster_level_records(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the network levels of the cluster as JSON types, innermost first."""
    return [as_json(level) for level in tree_levels(cluster)]


LEVELS = {
    "device": "one GPU",
    "nvlink": "NVLink domain",
    "host": "one host",
    "rack": "one rack",
    "fabric": "across NVLink domains",
}
"""Level that the groups of a parallel axis span -> words for it in the table of traffic."""


def estimate_text(plan: AnyPlan) -> str:
    """Return the tables that ``parc estimate`` prints.

    For a training job they show memory, step time, traffic and network levels.
    """
    if isinstance(plan, ServingPlan):
        return texts_of_pools(plan, serving_estimate_text) + simulated_pair_text(plan)
    estimate = plan.estimate
    parts = (
        f"{plan.problem.name}: {format_layout(plan.layout)}\n",
        "Memory per GPU in GiB, by pipeline stage "
        f"(limit {_format_gib(estimate.limit_bytes)}, * is the fullest stage)\n"
        + _memory_table(estimate),
        "Step time, as exposed on the critical path\n" + _step_time_table(estimate),
        "Traffic that one GPU sends per step\n" + _traffic_table(estimate),
        network_levels_text(plan.problem.cluster),
        "Run, with failures and checkpoints\n"
        + table(("", "value", "from"), run_table(plan), left=3),
        f"placement: {format_placement(plan)}\n",
        f"MFU {format_percent(estimate.mfu)}, "
        f"{format_quantity(estimate.tokens_per_second, ' tokens/s')}, "
        f"{format_quantity(estimate.model_flops_per_step, 'FLOP')} per step\n"
        + f"Basis of the estimate: {estimate_basis(plan).text}\n"
        + format_calibration(plan.problem)
        + "Formula of a term: parc explain TERM, for example parc explain activations_bytes\n",
    )
    return "\n".join(parts)


def estimate_document(plan: AnyPlan) -> dict[str, Any]:
    """Return the estimate of ``plan`` as JSON types, with the totals of memory and time."""
    if isinstance(plan, ServingPlan):
        if plan.pair is not None:
            return documents_of_pools(plan, plan.pair, serving_estimate_document)
        return serving_estimate_document(plan)
    estimate = plan.estimate
    document = {
        "format": 1,
        "name": plan.problem.name,
        "layout": {**as_json(plan.layout), "dp": plan.layout.dp, "edp": plan.layout.edp},
        **as_json(estimate),
        "memory": [
            {**as_json(stage), **{name: getattr(stage, name) for name in STAGE_TOTALS}}
            for stage in estimate.memory
        ],
        "time": {**as_json(estimate.time), "total_seconds": estimate.time.total_seconds},
        "peak_stage": estimate.peak.stage,
        "peak_bytes": estimate.peak.total_bytes,
        "fits": estimate.fits,
        "verdict": estimate.verdict,
        "placement": as_json(plan.placement.proof),
        "levels": cluster_level_records(plan.problem.cluster),
        "run": as_json(plan.run),
        "basis": basis_document(plan),
    }
    return dict(round_floats_in_tree(document))


def _memory_table(estimate: Estimate) -> str:
    """Return the table of memory terms; stages with equal memory share a row.

    An asterisk marks the fullest stage.
    """
    # Field order of the IR type, so that a new term needs no change here.
    terms = [field.name for field in fields(StageMemory) if field.name != "stage"]
    rows = [
        (
            format_range(first, last) + ("*" if first <= estimate.peak.stage <= last else ""),
            *(_format_gib(getattr(stage, term)) for term in terms),
            _format_gib(stage.total_bytes),
            f"{_format_gib(stage.low_bytes)}-{_format_gib(stage.high_bytes)}",
        )
        for first, last, stage in _fold_equal_stages(estimate.memory)
    ]
    head = ["stage", *(term.removesuffix("_bytes") for term in terms), "total", "80 % interval"]
    return table(head, rows)


def _fold_equal_stages(memory: tuple[StageMemory, ...]) -> list[tuple[int, int, StageMemory]]:
    """Return (first stage, last stage, memory) for each run of stages with equal memory."""
    runs: list[tuple[int, int, StageMemory]] = []
    for stage in memory:
        if runs and replace(runs[-1][2], stage=stage.stage) == stage:
            runs[-1] = (runs[-1][0], stage.stage, runs[-1][2])
        else:
            runs.append((stage.stage, stage.stage, stage))
    return runs


def _step_time_table(estimate: Estimate) -> str:
    total = estimate.time.total_seconds
    terms = [(field.name, getattr(estimate.time, field.name)) for field in fields(estimate.time)]
    rows = [
        (
            name.removesuffix("_seconds"),
            format_seconds(spent),
            format_percent(spent / total if total else 0.0),
        )
        for name, spent in [*terms, ("total", total)]
    ]
    low, high = (
        format_seconds(estimate.step_low_seconds),
        format_seconds(estimate.step_high_seconds),
    )
    interval = f"80 % interval of the total: {low} to {high}\n"
    return table(("term", "time", "share"), rows) + interval


def _traffic_table(estimate: Estimate) -> str:
    rows = [
        (
            axis.axis,
            LEVELS.get(axis.level, axis.level),
            format_quantity(axis.bytes_per_rank, "B"),
            format_without_exponent(axis.gb_per_s),
        )
        for axis in estimate.traffic
    ]
    return table(("axis", "within", "bytes", "GB/s"), rows, left=2)


def _format_gib(count_bytes: float) -> str:
    return f"{count_bytes / GIB:.2f}"
