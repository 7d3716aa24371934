"""Map of the cluster: racks, NVLink domains, hosts and GPUs, colored by a mesh axis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan
from parc.compiler.report.formatting import format_range
from parc.compiler.report.page.figure import Canvas, Figure
from parc.compiler.report.page.host_maps import (
    HostGrid,
    MapStyle,
    RackCells,
    colored_axis,
    draw_racks_as_blocks,
    draw_racks_as_columns,
    rack_cells,
)

WIDTH = 1080
MAX_GPUS = 1024
"""Largest cluster whose GPUs are drawn one by one; in larger ones each host is one cell."""
MAX_HOSTS = 20_000
"""Largest number of hosts that are drawn; further hosts are only counted in the caption."""
MAX_NAMED_RACKS = 160
"""Largest number of racks whose names are drawn."""
RAMP = ("#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#f0d92a")
"""Viridis (van der Walt and Smith 2015) without its darkest part. Lightness increases along the
ramp, so the order can be seen with any kind of color vision."""
MAX_SHADES = 64
"""Largest number of distinct colors, because more cannot be distinguished."""
AXES = {"pp": "pipeline stage (pp)", "dp": "data parallel rank (dp)", "replica": "engine"}


class ClusterMap(NamedTuple):
    """Figure of the cluster with its legend and caption, as values for the page template."""

    figure: Figure
    axis: str
    legend: tuple[tuple[str, str], ...]
    """(coordinate, or range of coordinates, color) of every color."""
    states: tuple[tuple[str, str], ...]
    """(state, number of hosts as text) of each state that occurs."""
    caption: str
    color_note: str
    """Sentence that names what the colors show."""
    racks: tuple[RackCells, ...]
    """Racks in the order of the map; those that are not drawn come last."""
    grid: HostGrid
    draws_gpus: bool
    """True if each GPU is drawn; False if each host is one cell."""


def cluster_map(plan: AnyPlan) -> ClusterMap:
    """Draw all hosts of the spec: GPU by GPU, or one cell per host if there are many GPUs."""
    placement = plan.placement
    axis = colored_axis(placement)
    racks = rack_cells(plan)
    count = sum(len(rack.cells) for rack in racks)
    gpus = count * placement.ranks_per_node <= MAX_GPUS
    # Smaller cells keep the figure of a large cluster on one screen.
    side = 10 if count <= 2_000 else 5 if count <= 8_000 else 4
    look = MapStyle(plan, axis, color_ramp(axis.size), side, len(racks) <= MAX_NAMED_RACKS)
    # Whole racks are left out, because a partly drawn rack would look like a smaller one.
    kept, left_out = _drawn_racks(racks)
    canvas = Canvas(WIDTH)
    draw = draw_racks_as_columns if gpus else draw_racks_as_blocks
    # The first rack may be too large to be drawn.
    grid = draw(canvas, look, kept) if kept else HostGrid(0, (), (), 1, 1, 0.0)
    states: dict[str, int] = {}
    for rack in racks:
        for cell in rack.cells:
            states[cell.state] = states.get(cell.state, 0) + 1
    hosts_in_racks = f"{format_count(count, 'host')} in {format_count(len(racks), 'rack')}"
    figure = canvas.build_figure(f"{hosts_in_racks}, colored by {axis.name}", grid.height)
    counts = tuple((state, format_count(hosts, "host")) for state, hosts in states.items())
    caption = _map_caption(plan, gpus, left_out)
    note = f"Colors show the {AXES.get(axis.name, f'position in the {axis.name} group')}."
    legend = tuple(_ranges_by_color(look.colors))
    return ClusterMap(figure, axis.name, legend, counts, caption, note, tuple(racks), grid, gpus)


def _map_caption(plan: AnyPlan, gpus: bool, left_out: int) -> str:
    """Return the caption, which explains the frames and cells of the map."""
    tensor, per_node = plan.placement.dense.axis_by_name("tp").size, plan.placement.ranks_per_node
    text = "Each frame is a rack and each cell a host"
    if gpus:
        text = "Each frame is a rack, each row a host and each square a GPU"
        if plan.problem.cluster.node.nvlink_spans_hosts:
            text += "; dashed frames are NVLink domains"
        if 1 < tensor <= per_node:
            text += f"; squares side by side without a gap form a tensor parallel group of {tensor}"
        elif tensor > per_node:
            text += f"; a tensor parallel group fills {tensor // per_node} rows"
    text += "."
    return text + (f" {left_out:,} more hosts are not drawn." if left_out else "")


def _drawn_racks(racks: list[RackCells]) -> tuple[list[RackCells], int]:
    """Return (racks to draw, number of hosts in all other racks)."""
    kept: list[RackCells] = []
    left = MAX_HOSTS
    for rack in racks:
        if len(rack.cells) > left:
            break
        kept.append(rack)
        left -= len(rack.cells)
    return kept, sum(len(rack.cells) for rack in racks[len(kept) :])


def _ranges_by_color(colors: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (coordinate or range of coordinates, color) for each run of equal ``colors``."""
    start = 0
    for color, run in groupby(colors):
        end = start + len(list(run))
        yield format_range(start, end - 1), color
        start = end


def color_ramp(count: int) -> list[str]:
    """Return ``count`` colors from dark to light as ``#rrggbb``.

    If ``count`` exceeds MAX_SHADES, neighbors share a color.
    """
    shades = min(count, MAX_SHADES)
    if shades == 1:
        return [RAMP[1]] * count
    # Integer division gives neighbors the same shade if there are more coordinates than shades.
    return [_ramp_color_at(index * shades // count / (shades - 1)) for index in range(count)]


def _ramp_color_at(share: float) -> str:
    """Return the color at the fraction ``share`` of RAMP: 0 is its dark end, 1 its light end."""
    place = min(share, 1.0) * (len(RAMP) - 1)
    index = min(int(place), len(RAMP) - 2)
    low, high = _rgb_channels(RAMP[index]), _rgb_channels(RAMP[index + 1])
    mixed = (round(a + (b - a) * (place - index)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _rgb_channels(color: str) -> tuple[int, ...]:
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))
