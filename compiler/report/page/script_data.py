"""Data of the script of report.html: hosts, process groups, key figures, and micro-batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import reduce
from typing import Any

from parc.backends.rankmap.group_extents import shown_families
from parc.compiler.cost.serving.terms import SERVING_TERMS
from parc.compiler.cost.step.terms import TERMS
from parc.compiler.ir import AnyPlan, Plan, ServingPlan, StageMemory, StepTime
from parc.compiler.ir.serving import StepTerms
from parc.compiler.report.formatting import round_floats_in_tree
from parc.compiler.report.page.cluster_map import MAX_SHADES, ClusterMap, color_ramp
from parc.compiler.report.page.host_maps import (
    GAP,
    GAP_IN_GROUP,
    GPU,
    NAME_WIDTH,
    RackCells,
    colored_axis,
    rack_name,
)
from parc.compiler.report.page.timeline import TimelineChart
from parc.compiler.report.text.search_table import DEGREES
from parc.compiler.report.text.serving_tables import DEGREES as SERVING_DEGREES
from parc.compiler.topology.hostlist import compress_hosts_in_order

UNUSED = {"idle": -1, "spare": -2, "unavailable": -3}
"""State of a host without ranks -> number that replaces its node rank in the data."""
PLAN_FIGURES = (
    ("plan", "name", "problem.name", ""),
    ("plan", "model", "problem.model.name", ""),
    ("plan", "GPU", "problem.cluster.gpu.name", ""),
    ("plan", "framework", "problem.framework", ""),
)
"""(section, title, path in plan.json, unit) of the figures of all plans that the page compares. The
units are those of ``show`` in templates/report/compare.js.j2."""
TRAINING_FIGURES = (
    ("layout", "GPUs", "layout.world", "count"),
    *(
        ("layout", name, f"layout.{name.replace('-', '_')}", "size")
        for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro-batch")
    ),
    ("layout", "ZeRO stage", "layout.zero_stage", "size"),
    ("layout", "schedule", "layout.schedule", ""),
    ("layout", "recompute", "layout.recompute.granularity", ""),
    ("estimate", "MFU", "estimate.mfu", "share"),
    ("estimate", "throughput", "estimate.tokens_per_second", "tokens/s"),
    ("estimate", "step time", "estimate.time.total_seconds", "s"),
    *(
        ("step time", TERMS[one.name].title, f"estimate.time.{one.name}", "s")
        for one in fields(StepTime)
    ),
    ("memory", "fullest GPU", "estimate.peak.total_bytes", "B"),
    *(
        ("memory", TERMS[one.name].title, f"estimate.peak.{one.name}", "B")
        for one in fields(StageMemory)
        if one.name in TERMS
    ),
    ("run", "steps", "run.steps", "count"),
    ("run", "expected time", "run.wall_seconds", "duration"),
    ("run", "GPU-hours", "run.gpu_hours", "count"),
    ("run", "energy in kWh, at most", "run.energy_kwh", "count"),
    ("run", "cost", "run.cost", "count"),
    ("run", "effective training", "run.effective_share", "share"),
)
SERVING_FIGURES = (
    ("layout", "GPUs", "layout.gpus", "count"),
    ("layout", "engines", "layout.replicas", "count"),
    *(("layout", name, f"layout.{name}", "size") for name in ("tp", "pp", "dp", "ep")),
    ("estimate", SERVING_TERMS["ttft_seconds"].title, "estimate.ttft_seconds", "s"),
    ("estimate", SERVING_TERMS["tpot_seconds"].title, "estimate.tpot_seconds", "s"),
    ("estimate", SERVING_TERMS["prefill_seconds"].title, "estimate.prefill_seconds", "s"),
    ("estimate", "output", "estimate.tokens_per_second", "tokens/s"),
    ("estimate", "output per GPU", "estimate.tokens_per_second_per_gpu", "tokens/s"),
    ("estimate", "max concurrent requests", "estimate.max_concurrency", "count"),
    ("estimate", "decode step", "estimate.decode.total_seconds", "s"),
    *(
        ("decode step", one.name.replace("_", " "), f"estimate.decode.{one.name}", "s")
        for one in fields(StepTerms)
    ),
    ("memory", "KV cache of a data-parallel rank", "limits.cache_tokens", "tokens"),
)


def script_data_text(plan: AnyPlan, shown: ClusterMap, timeline: TimelineChart | None) -> str:
    """Return ``script_data`` as JSON text that an HTML element ``script`` can contain."""
    tree = script_data(plan, shown, timeline)
    # A name with "</script>" would end the element; JSON texts may contain any character escaped.
    return json.dumps(tree, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")


def script_data(plan: AnyPlan, shown: ClusterMap, timeline: TimelineChart | None) -> dict[str, Any]:
    """Return the data of the page's script as JSON types."""
    chart = None
    if timeline is not None:
        chart = {key: _run_lengths(numbers) for key, numbers in timeline.micro_batches.items()}
    groups = list(_group_families(plan))
    document = {
        "colors": {str(count): color_ramp(count) for count in {one["shades"] for one in groups}},
        "degrees": SERVING_DEGREES if isinstance(plan, ServingPlan) else DEGREES,
        "figures": compared_figures(plan),
        "groups": groups,
        "map": _map_data(plan, shown),
        "timeline": chart,
    }
    return dict(round_floats_in_tree(document))


def compared_figures(plan: AnyPlan) -> list[list[Any]]:
    """Return [section, title, path in plan.json, unit, value] of each figure to compare.

    ``peak`` in a path is the memory of the fullest stage, see ``peak_stage`` in plan.json.
    """
    own = SERVING_FIGURES if isinstance(plan, ServingPlan) else TRAINING_FIGURES
    return [[*row, reduce(getattr, row[2].split("."), plan)] for row in (*PLAN_FIGURES, *own)]


def _group_families(plan: AnyPlan) -> Iterator[dict[str, Any]]:
    """Yield the families of process groups.

    ``axes`` are [stride, size] pairs, the fastest axis first. ``shades`` is the number of colors
    of the positions in a group. ``shown`` marks the family that the map shows first.
    """
    placement = plan.placement
    first = colored_axis(placement)
    routed = plan.problem.model.experts is not None
    for family in shown_families(placement, routed and isinstance(plan, Plan)):
        axes = placement.mesh(family.mesh).select_axes(*family.axes)
        size = placement.mesh(family.mesh).group_size(*family.axes)
        yield {
            "name": family.name,
            "axes": [[axis.stride, axis.size] for axis in axes],
            "shades": min(size, MAX_SHADES),
            "shown": family.mesh == "dense" and axes == (first,),
        }


def _map_data(plan: AnyPlan, shown: ClusterMap) -> dict[str, Any]:
    """Return the hosts by rack, and their positions on the map."""
    placement, grid = plan.placement, shown.grid
    tensor = placement.dense.axis_by_name("tp")
    return {
        "gpus": shown.draws_gpus,
        "across": grid.across,
        "pitch": grid.pitch,
        "gpu": [GPU, GAP, GAP_IN_GROUP, NAME_WIDTH],
        "tp": [tensor.stride, tensor.size],
        "ranks_per_node": placement.ranks_per_node,
        "devices": list(placement.devices),
        "drawn": grid.racks,
        "columns": grid.columns,
        "lines": grid.lines,
        "racks": [
            [rack_name(rack, 60), _host_names(rack), _run_lengths(_node_ranks(rack))]
            for rack in shown.racks
        ],
    }


def _node_ranks(rack: RackCells) -> Iterator[int]:
    for cell in rack.cells:
        yield cell.node if cell.state == "used" else UNUSED[cell.state]


def _host_names(rack: RackCells) -> str | list[str]:
    """Return the host names as a host list; as a list of names if they contain its characters."""
    names = [cell.name for cell in rack.cells]
    if any(set(name) & set("[],") for name in names):
        return names
    return compress_hosts_in_order(names)


def _run_lengths(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as [start, count] pairs; negative starts repeat, others count up by one."""
    runs: list[list[int]] = []
    for number in numbers:
        start, count = runs[-1] if runs else (0, 0)
        if count and number == (start if start < 0 else start + count):
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return runs
