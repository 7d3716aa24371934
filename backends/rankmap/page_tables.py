"""The tables of pipeline stages and of racks in rankmap.md, with their ranks and hosts."""

from __future__ import annotations

from itertools import groupby

from parc.backends.rankmap.table_cells import (
    clip_list,
    fold_numbers,
    fold_ranges,
    markdown_cell_text,
    shorten_rows,
)
from parc.compiler.ir import Layout, Placement, Plan
from parc.compiler.topology.hostlist import compress_hosts

MAX_STAGES = 18
MAX_RACKS = 10


def stage_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return (stage, ranks, node ranks, hosts, layers) per pipeline stage.

    If there are more than MAX_STAGES stages, consecutive stages with the same content share a row.
    """
    layout = plan.layout
    stages: list[tuple[int, ...]] = [(stage,) for stage in range(layout.pp)]
    if layout.pp > MAX_STAGES:
        alike = groupby(range(layout.pp), key=lambda stage: _stage_content(layout, stage))
        stages = [tuple(group) for _, group in alike]
    left = len(stages) - MAX_STAGES + 1
    kept = shorten_rows(stages, MAX_STAGES, ())
    gap = ("...", f"{left} more rows", "", "", "")
    return [_stage_row(plan, group) if group else gap for group in kept]


def _stage_content(layout: Layout, stage: int) -> tuple[int, int, bool, bool]:
    """Return (layers, MTP layers, has the embedding, has the loss) of a stage."""
    chunks = layout.split.chunks[stage]
    return (
        sum(chunk.layers for chunk in chunks),
        sum(chunk.mtp_layers for chunk in chunks),
        any(chunk.embedding for chunk in chunks),
        any(chunk.loss for chunk in chunks),
    )


def _stage_row(plan: Plan, stages: tuple[int, ...]) -> tuple[str, ...]:
    """Return the table cells of the row for ``stages``, consecutive stages with equal content."""
    placement = plan.placement
    ranges = [_stage_rank_ranges(placement, stage) for stage in stages]
    # For several stages only the outermost ranks are shown, because a list of ranges would be too
    # long.
    ranks = f"{ranges[0][0][0]}-{ranges[-1][-1][1]}" if ranges[1:] else fold_ranges(ranges[0])
    each = placement.ranks_per_node
    nodes = {
        node
        for of_stage in ranges
        for low, high in of_stage
        for node in range(low // each, high // each + 1)
    }
    return (
        fold_numbers(stages),
        clip_list(ranks, 24),
        clip_list(fold_numbers(nodes), 20),
        clip_list(compress_hosts(placement.hosts[node].name for node in nodes), 30),
        _describe_layers(plan.layout, stages),
    )


def _stage_rank_ranges(placement: Placement, stage: int) -> list[tuple[int, int]]:
    """Return (first, last) of every range of consecutive ranks on ``stage``."""
    axis = placement.dense.axis_by_name("pp")
    period = axis.stride * axis.size
    starts = range(stage * axis.stride, placement.dense.world, period)
    return [(start, start + axis.stride - 1) for start in starts]


def _describe_layers(layout: Layout, stages: tuple[int, ...]) -> str:
    """Return the layers of ``stages`` as text, such as ``0-19 + loss`` or ``3 each``."""
    chunks = layout.split.chunks[stages[0]]
    layers, mtp, embedding, loss = _stage_content(layout, stages[0])
    if len(stages) > 1:
        text = f"{layers} each"
    else:
        owned = [n for c in chunks for n in range(c.first_layer, c.first_layer + c.layers)]
        text = clip_list(fold_numbers(owned), 24) if owned else "none"
    extras = [name for name, here in (("embedding", embedding), ("loss", loss)) if here]
    if mtp:
        extras.append(f"{mtp} MTP")
    return " + ".join([text, *extras])


def rack_rows(placement: Placement) -> list[tuple[str, ...]]:
    """Return (rack, host count, host names, node ranks, stages) per rack, by first node rank."""
    nodes: dict[str, list[int]] = {}
    for node, host in enumerate(placement.hosts):
        nodes.setdefault(host.rack, []).append(node)
    gap = ("...", "", f"{len(nodes) - MAX_RACKS + 1} more racks", "", "")
    kept = shorten_rows(list(nodes), MAX_RACKS, "")
    return [_rack_row(placement, rack, nodes[rack]) if rack in nodes else gap for rack in kept]


def _rack_row(placement: Placement, rack: str, nodes: list[int]) -> tuple[str, ...]:
    """Return the table cells of the row for ``rack``, whose hosts have the node ranks ``nodes``."""
    names = compress_hosts(placement.hosts[node].name for node in nodes)
    each = placement.ranks_per_node
    stages = {
        placement.dense.coordinate_of_rank(rank, "pp")
        for node in nodes
        for rank in range(node * each, node * each + each)
    }
    return (
        markdown_cell_text(rack, 24),
        str(len(nodes)),
        clip_list(names, 36),
        clip_list(fold_numbers(nodes), 24),
        clip_list(fold_numbers(stages), 16),
    )
