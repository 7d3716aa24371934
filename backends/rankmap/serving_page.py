"""Text of ``rankmap.md`` for a serving job: engines, stages, racks and process groups."""

from __future__ import annotations

from typing import Any

from parc.backends.rankmap.group_extents import group_extents
from parc.backends.rankmap.page_tables import rack_rows
from parc.backends.rankmap.table_cells import (
    clip_list,
    fold_numbers,
    markdown_cell_text,
    shorten_rows,
)
from parc.backends.rankmap.training_page import SAMPLE_RANKS, process_group_cells, rank_formula
from parc.backends.shared.render import render
from parc.compiler.ir import ServingPlan
from parc.compiler.topology.hostlist import compress_hosts

MAX_ENGINES = 24
MAX_STAGES = 18
GIB = 2**30


def render_serving_page(plan: ServingPlan) -> str:
    """Return the Markdown text of ``rankmap.md``: at most 120 lines of at most 120 columns."""
    problem, placement, layout = plan.problem, plan.placement, plan.layout
    names = ("tp", "pcp", "pp", "dp", "ep", "dcp", "replicas")
    degrees = [(name, getattr(layout, name)) for name in names]
    values: dict[str, Any] = {
        "name": markdown_cell_text(problem.name, 80),
        "world": layout.gpus,
        "nodes": len(placement.hosts),
        "ranks_per_node": placement.ranks_per_node,
        "target": f"{problem.framework} {problem.version(problem.framework)}",
        "degrees": ", ".join(
            f"{name} {size}" for name, size in degrees if size > 1 or name in ("tp", "pp")
        ),
        "formula": rank_formula(placement.dense, {"cp": "pcp"}),
        "routed": problem.model.experts is not None,
        "named": problem.cluster.named,
        "engines": _engine_rows(plan),
        "stages": _stage_rows(plan),
        "racks": rack_rows(placement),
        "spans": [process_group_cells(span) for span in group_extents(placement, False)],
        "columns": tuple(placement.rank_map_columns),
        "sample": _sample_rank_rows(plan),
    }
    return render("rankmap", "serving.md.j2", values)


def _engine_rows(plan: ServingPlan) -> list[tuple[str, ...]]:
    """Return (engine, ranks, node ranks, hosts, local GPUs) per engine."""
    each, gpus = plan.placement.ranks_per_node, plan.layout.engine_gpus
    rows = []
    for replica in range(plan.layout.replicas):
        first, last = replica * gpus, replica * gpus + gpus - 1
        nodes = list(range(first // each, last // each + 1))
        hosts = compress_hosts(plan.placement.hosts[node].name for node in nodes)
        # An engine on several hosts uses all GPUs of each host.
        local = f"{first % each}-{last % each}" if len(nodes) == 1 else f"0-{each - 1}"
        rows.append(
            (
                str(replica),
                f"{first}-{last}",
                clip_list(fold_numbers(nodes), 24),
                clip_list(hosts, 36),
                local,
            )
        )
    gap = ("...", f"{len(rows) - MAX_ENGINES + 1} more engines", "", "", "")
    return shorten_rows(rows, MAX_ENGINES, gap)


def _stage_rows(plan: ServingPlan) -> list[tuple[str, ...]]:
    """Return (stage, layers, weights in GiB, cache in GiB, cache blocks) per pipeline stage.

    Sizes are per rank of the stage.
    """
    rows, first = [], 0
    for stage in plan.stages:
        layers = f"{first}-{first + stage.layers - 1}"
        first += stage.layers
        rows.append(
            (
                str(stage.stage),
                layers,
                f"{stage.weights_bytes / GIB:.2f}",
                f"{stage.cache_bytes / GIB:.2f}",
                f"{stage.blocks:,}",
            )
        )
    gap = ("...", f"{len(rows) - MAX_STAGES + 1} more stages", "", "", "")
    return shorten_rows(rows, MAX_STAGES, gap)


def _sample_rank_rows(plan: ServingPlan) -> list[tuple[str, ...]]:
    """Return (rank, host, local rank, coordinates) of the first SAMPLE_RANKS ranks."""
    placement = plan.placement
    each = placement.ranks_per_node
    return [
        (
            str(rank),
            markdown_cell_text(placement.host_of(rank).name, 40),
            str(rank % each),
            *(str(column[rank]) for column in placement.rank_map_columns.values()),
        )
        for rank in range(min(plan.layout.gpus, SAMPLE_RANKS))
    ]
