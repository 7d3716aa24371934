"""The picture of the cluster: racks, NVLink domains, hosts, GPUs, coloured by an axis."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir import AnyPlan, Axis
from parc.compiler.report.page.figure import Canvas, Figure
from parc.compiler.report.page.host_cells import draw_cells
from parc.compiler.report.page.host_rows import draw_rows
from parc.compiler.report.page.hosts import MapStyle, RackCells, colored_axis, rack_cells

WIDTH = 1080
MAX_GPUS = 1024
"""GPUs that are drawn one by one; larger clusters have a cell a host."""
MAX_HOSTS = 20_000
"""Hosts that are drawn at all; the rest is counted."""
MAX_NAMED_RACKS = 160
"""Racks whose names still find room."""
RAMP = ("#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#f0d92a")
"""Viridis (van der Walt and Smith 2015) without its darkest part: lightness grows with the step,
so that the order shows without hue."""
MAX_SHADES = 64
"""Classes of a ramp; nobody tells more apart."""
AXES = {"pp": "pipeline stage (pp)", "dp": "data-parallel rank (dp)", "replica": "engine"}


class ClusterMap(NamedTuple):
    """The picture, and what its legend and caption need."""

    figure: Figure
    axis: str
    legend: tuple[tuple[str, str], ...]
    """(coordinate, colour): at most a dozen, the first and the last among them."""
    states: tuple[tuple[str, str], ...]
    """(state, hosts) of every state that occurs."""
    caption: str


def cluster_map(plan: AnyPlan) -> ClusterMap:
    """Draw every host of the spec: GPU by GPU, or a cell a host in larger clusters."""
    placement = plan.placement
    axis = colored_axis(placement)
    racks = rack_cells(plan)
    count = sum(len(rack.cells) for rack in racks)
    gpus = count * placement.ranks_per_node <= MAX_GPUS
    side = 10 if count <= 2_000 else 5 if count <= 8_000 else 4
    look = MapStyle(plan, axis, ramp(axis.size), side, len(racks) <= MAX_NAMED_RACKS)
    kept, left_out = _drawn_racks(racks)
    canvas = Canvas(WIDTH)
    height = (draw_rows if gpus else draw_cells)(canvas, look, kept)
    states: dict[str, int] = {}
    for rack in racks:
        for cell in rack.cells:
            states[cell.state] = states.get(cell.state, 0) + 1
    figure = canvas.figure(f"{count} hosts in {len(racks)} racks, coloured by {axis.name}", height)
    legend = tuple((str(index), look.colors[index]) for index in _sample(axis.size))
    counts = tuple((state, f"{hosts:,}") for state, hosts in states.items())
    return ClusterMap(figure, axis.name, legend, counts, _caption(plan, axis, gpus, left_out))


def _caption(plan: AnyPlan, axis: Axis, gpus: bool, left_out: int) -> str:
    """How the picture is to be read."""
    tensor, per_node = plan.placement.dense.axis("tp").size, plan.placement.ranks_per_node
    text = "A frame is a rack, a cell a host"
    if gpus:
        text = "A frame is a rack, a row a host, a square a GPU"
        if plan.problem.cluster.node.nvlink_domain > plan.problem.cluster.node.gpus:
            text += ", a dashed frame an NVLink domain"
        if 1 < tensor <= per_node:
            text += f"; squares that touch are one tensor-parallel group of {tensor}"
        elif tensor > per_node:
            text += f"; a tensor-parallel group is {tensor // per_node} rows"
    text += f". Colours are the {AXES.get(axis.name, axis.name)}."
    return text + (f" {left_out:,} more hosts are not drawn." if left_out else "")


def _drawn_racks(racks: list[RackCells]) -> tuple[list[RackCells], int]:
    """The racks that are drawn, and how many hosts the others have."""
    kept: list[RackCells] = []
    room = MAX_HOSTS
    for rack in racks:
        if len(rack.cells) > room:
            break
        kept.append(rack)
        room -= len(rack.cells)
    return kept, sum(len(rack.cells) for rack in racks[len(kept) :])


def _sample(size: int) -> list[int]:
    """At most a dozen of ``size`` coordinates, evenly."""
    if size <= 12:
        return list(range(size))
    return sorted({round(index * (size - 1) / 11) for index in range(12)})


def ramp(count: int) -> list[str]:
    """``count`` colours from dark to light; more than 64 share."""
    shades = min(count, MAX_SHADES)
    if shades == 1:
        return [RAMP[1]] * count
    return [_between(index * shades // count / (shades - 1)) for index in range(count)]


def _between(share: float) -> str:
    """The colour at ``share`` of the ramp, 0 to 1."""
    place = min(share, 1.0) * (len(RAMP) - 1)
    index = min(int(place), len(RAMP) - 2)
    low, high = _channels(RAMP[index]), _channels(RAMP[index + 1])
    mixed = (round(a + (b - a) * (place - index)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(color: str) -> tuple[int, ...]:
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))
