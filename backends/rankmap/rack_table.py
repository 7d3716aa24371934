"""The table of racks in rankmap.md, with the hosts, node ranks and pipeline stages of each rack."""

from __future__ import annotations

from parc.backends.rankmap.table_cells import (
    clip_list,
    fold_numbers,
    markdown_cell_text,
    shorten_rows,
)
from parc.compiler.ir import Placement
from parc.compiler.topology.hostlist import compress_hosts

MAX_RACKS = 10


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
    pipeline, each = placement.dense.axis_by_name("pp"), placement.ranks_per_node
    stages = {
        # The coordinate of a rank along an axis follows from the axis' stride and size.
        rank // pipeline.stride % pipeline.size
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
