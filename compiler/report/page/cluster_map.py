"""The picture of the cluster: racks, NVLink domains, hosts, GPUs, coloured by an axis."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir import AnyPlan, Axis
from parc.compiler.report.page.colors import ramp
from parc.compiler.report.page.figure import Canvas, Figure, clipped
from parc.compiler.report.page.hosts import (
    NOWHERE,
    Cell,
    RackCells,
    colored_axis,
    group_starts,
    rack_cells,
    shares,
)

WIDTH = 1080
MOST_GPUS = 1024
"""GPUs that are drawn one by one; larger clusters have a cell a host."""
MOST_HOSTS = 20_000
"""Hosts that are drawn at all; the rest is counted."""
NAMED_RACKS = 160
"""Racks whose names still find room."""
AXES = {"pp": "pipeline stage (pp)", "dp": "data-parallel rank (dp)", "replica": "engine"}
GPU, GAP, NEAR = 12, 4, 1
"""Side of a GPU, room between tensor groups, and between the GPUs of one."""
NAME_WIDTH = 84


class ClusterMap(NamedTuple):
    """The picture, and what its legend and caption need."""

    figure: Figure
    axis: str
    legend: tuple[tuple[str, str], ...]
    """(coordinate, colour): at most a dozen, the first and the last among them."""
    states: tuple[tuple[str, str], ...]
    """(state, hosts) of every state that occurs."""
    caption: str


class _Look(NamedTuple):
    """What all cells share."""

    plan: AnyPlan
    axis: Axis
    colors: list[str]
    side: int
    """Side of a host's cell, where hosts are cells."""
    named: bool


def cluster_map(plan: AnyPlan) -> ClusterMap:
    """Draw every host of the spec: GPU by GPU, or a cell a host in larger clusters."""
    placement = plan.placement
    axis = colored_axis(placement)
    racks = rack_cells(plan)
    count = sum(len(rack.cells) for rack in racks)
    gpus = count * placement.ranks_per_node <= MOST_GPUS
    side = 10 if count <= 2_000 else 5 if count <= 8_000 else 4
    look = _Look(plan, axis, ramp(axis.size), side, len(racks) <= NAMED_RACKS)
    kept, left_out = _first(racks)
    canvas = Canvas(WIDTH)
    height = (_host_rows if gpus else _host_cells)(canvas, look, kept)
    states: dict[str, int] = {}
    for rack in racks:
        for cell in rack.cells:
            states[cell.state] = states.get(cell.state, 0) + 1
    figure = canvas.figure(f"{count} hosts in {len(racks)} racks, coloured by {axis.name}", height)
    legend = tuple((str(index), look.colors[index]) for index in _shown(axis.size))
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


def _first(racks: list[RackCells]) -> tuple[list[RackCells], int]:
    """The racks that are drawn, and how many hosts the others have."""
    kept: list[RackCells] = []
    room = MOST_HOSTS
    for rack in racks:
        if len(rack.cells) > room:
            break
        kept.append(rack)
        room -= len(rack.cells)
    return kept, sum(len(rack.cells) for rack in racks[len(kept) :])


def _shown(size: int) -> list[int]:
    """At most a dozen of ``size`` coordinates, evenly."""
    if size <= 12:
        return list(range(size))
    return sorted({round(index * (size - 1) / 11) for index in range(12)})


def _host_rows(canvas: Canvas, look: _Look, racks: list[RackCells]) -> float:
    """A rack is a column of hosts, a host a row of GPUs; returns the height."""
    per_node = look.plan.placement.ranks_per_node
    row = GPU + 5
    wide = NAME_WIDTH + per_node * (GPU + GAP) + 16
    columns = max(1, (WIDTH + 14) // (wide + 14))
    top = 0.0
    for start in range(0, len(racks), columns):
        line = racks[start : start + columns]
        for place, rack in enumerate(line):
            x = place * (wide + 14)
            canvas.area("rack", (x + 0.5, top + 0.5, wide - 1, 25 + len(rack.cells) * row), "")
            canvas.word(x + 8, top + 15, _rack_name(rack, 28), role="strong")
            for index, cell in enumerate(rack.cells):
                _host_row(canvas, look, cell, (x + 8, top + 22 + index * row))
            _domains(canvas, rack, (x + 3, top + 20, wide - 6, row))
        top += 38 + max(len(rack.cells) for rack in line) * row
    return top - 10


def _rack_name(rack: RackCells, length: int) -> str:
    return "not available" if rack.name == NOWHERE else clipped(rack.name, length)


def _domains(canvas: Canvas, rack: RackCells, at: tuple[float, float, float, float]) -> None:
    """A frame around neighbours that share an NVLink domain; at: x, y, width, row height."""
    x, y, width, row = at
    start = 0
    for index in range(1, len(rack.cells) + 1):
        same = index < len(rack.cells) and rack.cells[index].domain == rack.cells[start].domain
        if same:
            continue
        if index - start > 1:
            title = f"NVLink domain {rack.cells[start].domain}: {index - start} hosts"
            canvas.area("domain", (x, y + start * row, width, (index - start) * row - 1), title)
        start = index


def _host_row(canvas: Canvas, look: _Look, cell: Cell, at: tuple[float, float]) -> None:
    """The name of a host and its GPUs; those that touch are one tensor group."""
    x, y = at
    placement = look.plan.placement
    per_node = placement.ranks_per_node
    canvas.word(x, y + GPU - 2, clipped(cell.name, 13), role="small")
    x += NAME_WIDTH
    first = cell.node * per_node
    if cell.node < 0:
        for index in range(per_node):
            canvas.box(cell.state, x + index * (GPU + GAP), y, GPU, GPU)
        title = f"{cell.name}: {cell.state}"
    else:
        starts = group_starts(placement.dense, "tp", first, per_node)
        inks = [
            look.colors[coordinate]
            for coordinate, ranks in shares(look.axis, first, per_node)
            for _ in range(ranks)
        ]
        left = x
        for index, ink in enumerate(inks):
            left += (GAP if starts[index] else NEAR) if index else 0
            canvas.bar(ink, left, y, GPU, GPU)
            left += GPU
        title = _title(look, cell)
    canvas.area("hit", (at[0], y - 2, NAME_WIDTH + per_node * (GPU + GAP), GPU + 4), title)


def _title(look: _Look, cell: Cell) -> str:
    """``r01n01: node 0, ranks 0 to 7, pp 0``."""
    per_node = look.plan.placement.ranks_per_node
    first = cell.node * per_node
    coordinates = sorted({coordinate for coordinate, _ in shares(look.axis, first, per_node)})
    several = f"{coordinates[0]} to {coordinates[-1]}" if len(coordinates) > 1 else coordinates[0]
    ranks = f"ranks {first} to {first + per_node - 1}" if per_node > 1 else f"rank {first}"
    return f"{cell.name}: node {cell.node}, {ranks}, {look.axis.name} {several}"


def _host_cells(canvas: Canvas, look: _Look, racks: list[RackCells]) -> float:
    """A rack is a block of cells, a host a cell, striped where it has several coordinates."""
    side, named = look.side, look.named
    most = max(len(rack.cells) for rack in racks)
    across = max(1, round(most**0.5))
    while named and across * (side + 1) < 46 and across < most:
        across += 1
    deep = -(-most // across)
    pad, head = (4, 15) if named else (2, 0)
    wide, high = across * (side + 1) + 2 * pad - 1, deep * (side + 1) + 2 * pad - 1 + head
    columns = max(1, (WIDTH + 6) // (wide + 6))
    for index, rack in enumerate(racks):
        x, y = index % columns * (wide + 6), index // columns * (high + 6)
        canvas.area("rack", (x + 0.5, y + 0.5, wide - 1, high - 1), _rack_title(look, rack))
        if named:
            canvas.word(x + pad, y + 13, _rack_name(rack, wide // 6), role="small")
        for number, cell in enumerate(rack.cells):
            left = x + pad + number % across * (side + 1)
            top = y + pad + head + number // across * (side + 1)
            _host_cell(canvas, look, cell, (left, top))
    return float(-(-len(racks) // columns) * (high + 6) - 6)


def _rack_title(look: _Look, rack: RackCells) -> str:
    """``r01: 16 hosts, node ranks 0 to 15, pp 0 to 3``."""
    used = [cell for cell in rack.cells if cell.node >= 0]
    text = f"{_rack_name(rack, 60)}: {len(rack.cells)} hosts"
    if not used:
        return text
    per_node = look.plan.placement.ranks_per_node
    nodes = [cell.node for cell in used]
    found = {
        coordinate
        for node in nodes
        for coordinate, _ in shares(look.axis, node * per_node, per_node)
    }
    several = f"{min(found)} to {max(found)}" if len(found) > 1 else str(min(found))
    return f"{text}, node ranks {min(nodes)} to {max(nodes)}, {look.axis.name} {several}"


def _host_cell(canvas: Canvas, look: _Look, cell: Cell, at: tuple[float, float]) -> None:
    x, y = at
    side, per_node = look.side, look.plan.placement.ranks_per_node
    if cell.node < 0:
        canvas.box(cell.state, x, y, side, side)
        return
    for coordinate, ranks in shares(look.axis, cell.node * per_node, per_node):
        wide = side * ranks / per_node
        canvas.bar(look.colors[coordinate], x, y, wide, side)
        x += wide
