"""Maps of the hosts of a plan by rack, colored by mesh coordinate.

In the map of a large cluster, each rack is a block of cells and each host is a cell. In the map of
a small cluster, each rack is a column of hosts and each host is a row of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir import AnyPlan, Axis, Host, Mesh, Placement
from parc.compiler.report.page.figure import Canvas, clip_text

State = Literal["used", "idle", "spare", "unavailable"]
UNKNOWN_RACK = ""
"""Rack of unavailable hosts, whose real racks are unknown."""


class HostCell(NamedTuple):
    """Host on the map; ``node`` is its node rank, or -1 if no rank runs on it."""

    name: str
    domain: str
    state: State
    node: int


class RackCells(NamedTuple):
    """Rack on the map, with its hosts."""

    name: str
    cells: tuple[HostCell, ...]


class HostGrid(NamedTuple):
    """Positions of the hosts on the map, in units; the page's script colors and marks them."""

    racks: int
    """Number of drawn racks, which fill line after line."""
    columns: tuple[int, ...]
    """x of the first host of a rack, for each column of racks."""
    lines: tuple[float, ...]
    """y of the first host of a rack, for each line of racks."""
    across: int
    """Hosts per row of a rack."""
    pitch: int
    """Distance of neighboring rows; of neighboring columns too, if a row has several hosts."""
    height: float
    """Height of the whole map."""


class MapStyle(NamedTuple):
    """Settings that both kinds of map share: the colored axis, its colors, and sizes."""

    plan: AnyPlan
    axis: Axis
    colors: list[str]
    side: int
    """Side of the cell of a host, in units."""
    named: bool


def rack_cells(plan: AnyPlan) -> list[RackCells]:
    """Return all hosts of the spec by rack.

    Unavailable hosts come last, because only their names are known and not their racks.
    """
    cluster = plan.problem.cluster
    nodes = {host.name: node for node, host in enumerate(plan.placement.hosts)}
    racks: dict[str, list[HostCell]] = {}
    for rack in cluster.racks:
        racks[rack.name] = [_used_or_idle_cell(host, nodes) for host in rack.hosts]
    for host in cluster.spare:
        cell = HostCell(host.name, host.nvlink_domain, "spare", -1)
        # A rack that consists only of spare hosts is not among cluster.racks.
        racks.setdefault(host.rack, []).append(cell)
    away = tuple(HostCell(name, name, "unavailable", -1) for name in cluster.unavailable)
    known = [RackCells(name, tuple(cells)) for name, cells in racks.items()]
    return [*known, RackCells(UNKNOWN_RACK, away)] if away else known


def _used_or_idle_cell(host: Host, nodes: dict[str, int]) -> HostCell:
    node = nodes.get(host.name, -1)
    return HostCell(host.name, host.nvlink_domain, "used" if node >= 0 else "idle", node)


def colored_axis(placement: Placement) -> Axis:
    """Return the mesh axis that the colors of the map show.

    This axis is pp if the plan has a pipeline. Otherwise it is the slowest-varying axis with more
    than one coordinate.
    """
    pipeline = placement.dense.axis_by_name("pp")
    if pipeline.size > 1:
        return pipeline
    # Axes are ordered from the fastest-varying to the slowest-varying.
    split = [axis for axis in placement.dense.axes if axis.size > 1]
    return split[-1] if split else pipeline


def coordinate_runs(axis: Axis, first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield (coordinate, number of ranks) for each run of ranks with equal coordinates on ``axis``.

    The runs cover the ranks ``first`` to ``first + count - 1``. The loop steps from run to run
    instead of from rank to rank, which is faster.
    """
    rank, end = first, first + count
    while rank < end:
        until = min(end, (rank // axis.stride + 1) * axis.stride)
        yield rank // axis.stride % axis.size, until - rank
        rank = until


def starts_new_group(mesh: Mesh, name: str, first: int, count: int) -> list[bool]:
    """Return a flag for each of the ranks ``first`` to ``first + count - 1``.

    A flag is True if the rank and the previous rank are in different groups along the mesh axis
    ``name``. The first flag is always True.
    """
    axis = mesh.axis_by_name(name)
    # A group lies inside a block of stride x size ranks and is a residue modulo the stride.
    wide = axis.stride * axis.size
    numbers = [
        (rank // wide, rank % axis.stride) if axis.size > 1 else (rank, 0)
        for rank in range(first, first + count)
    ]
    return [True, *(one != other for one, other in pairwise(numbers))]


def rack_name(rack: RackCells, length: int) -> str:
    """Return the name of a rack, clipped to ``length`` characters."""
    return "unavailable" if rack.name == UNKNOWN_RACK else clip_text(rack.name, length)


def draw_racks_as_blocks(canvas: Canvas, look: MapStyle, racks: list[RackCells]) -> HostGrid:
    """Draw each rack as a block of cells, one cell per host; return their positions.

    A host whose ranks have several coordinates is striped.
    """
    side, named = look.side, look.named
    most = max(len(rack.cells) for rack in racks)
    across = _cells_per_row(most, side if named else 0)
    # Negated floor division rounds up, so that a last row that is not full counts.
    deep = -(-most // across)
    pad, head = (4, 15) if named else (2, 0)
    wide, high = across * (side + 1) + 2 * pad - 1, deep * (side + 1) + 2 * pad - 1 + head
    columns = _racks_per_line(look.plan, max(1, (canvas.width + 6) // (wide + 6)))
    for index, rack in enumerate(racks):
        x, y = index % columns * (wide + 6), index // columns * (high + 6)
        canvas.add_tooltip(
            "rack", (x + 0.5, y + 0.5, wide - 1, high - 1), _rack_tooltip(look, rack)
        )
        if named:
            canvas.write_text(x + pad, y + 13, rack_name(rack, wide // 6), role="small")
        for number, cell in enumerate(rack.cells):
            left = x + pad + number % across * (side + 1)
            top = y + pad + head + number // across * (side + 1)
            _draw_host_cell(canvas, look, cell, (left, top))
    count = -(-len(racks) // columns)
    lefts = tuple(place * (wide + 6) + pad for place in range(min(columns, len(racks))))
    tops = tuple(float(line * (high + 6) + pad + head) for line in range(count))
    return HostGrid(len(racks), lefts, tops, across, side + 1, float(count * (high + 6) - 6))


def _racks_per_line(plan: AnyPlan, most: int) -> int:
    """Return the number of racks per line, at most ``most``.

    If all switches above the racks have equally many racks, a line contains whole switches or an
    equal part of one, unless such lines would be less than half full.
    """
    racks = plan.problem.cluster.racks
    above = [rack.hosts[0].switch_path[1:2] for rack in racks]
    sizes = {len(list(run)) for _, run in groupby(above)}
    if len(sizes) != 1 or len(racks) <= most:
        return most
    size = sizes.pop()
    fitting = (wide for wide in range(most, most // 2, -1) if wide % size == 0 or size % wide == 0)
    return next(fitting, most)


def _cells_per_row(cells: int, side: int) -> int:
    """Return the number of cells per row of a rack with ``cells`` hosts.

    The block of cells is about square and at least as wide as the name of the rack. If possible,
    the last row is full. ``side`` is the width of a cell, or 0 if no names are drawn.
    """
    # 46 units are enough for the name of a rack, which is about eight characters long.
    least = max(1, round(cells**0.5), min(cells, -(-46 // (side + 1)) if side else 1))
    return next((wide for wide in range(least, 2 * least + 1) if cells % wide == 0), least)


def _rack_tooltip(look: MapStyle, rack: RackCells) -> str:
    """Return the tooltip of a rack, such as ``r01: 16 hosts, node ranks 0 to 15, pp 0 to 3``."""
    used = [cell for cell in rack.cells if cell.node >= 0]
    text = f"{rack_name(rack, 60)}: {format_count(len(rack.cells), 'host')}"
    if not used:
        return text
    per_node = look.plan.placement.ranks_per_node
    nodes = [cell.node for cell in used]
    found = {
        coordinate
        for node in nodes
        for coordinate, _ in coordinate_runs(look.axis, node * per_node, per_node)
    }
    several = f"{min(found)} to {max(found)}" if len(found) > 1 else str(min(found))
    return f"{text}, node ranks {min(nodes)} to {max(nodes)}, {look.axis.name} {several}"


def _draw_host_cell(
    canvas: Canvas, look: MapStyle, cell: HostCell, at: tuple[float, float]
) -> None:
    x, y = at
    side, per_node = look.side, look.plan.placement.ranks_per_node
    if cell.node < 0:  # no ranks: the color shows the state
        canvas.draw_box(cell.state, x, y, side, side)
        return
    for coordinate, ranks in coordinate_runs(look.axis, cell.node * per_node, per_node):
        wide = side * ranks / per_node
        canvas.draw_bar(look.colors[coordinate], x, y, wide, side)
        x += wide


GPU, GAP, GAP_IN_GROUP = 12, 4, 1
"""Side of a GPU, gap between tensor parallel groups, and gap within a group, in units."""
NAME_WIDTH = 84


def draw_racks_as_columns(canvas: Canvas, look: MapStyle, racks: list[RackCells]) -> HostGrid:
    """Draw each rack as a column of hosts, each host as a row of GPUs; return their positions."""
    per_node = look.plan.placement.ranks_per_node
    row = GPU + 5
    wide = NAME_WIDTH + per_node * (GPU + GAP) + 16
    columns = max(1, (canvas.width + 14) // (wide + 14))
    top, tops = 0.0, []
    for start in range(0, len(racks), columns):
        line = racks[start : start + columns]
        tops.append(top + 22)
        for place, rack in enumerate(line):
            x = place * (wide + 14)
            canvas.add_tooltip(
                "rack", (x + 0.5, top + 0.5, wide - 1, 25 + len(rack.cells) * row), ""
            )
            canvas.write_text(x + 8, top + 15, rack_name(rack, 28), role="strong")
            for index, cell in enumerate(rack.cells):
                _draw_host_row(canvas, look, cell, (x + 8, top + 22 + index * row))
            _draw_nvlink_domains(canvas, rack, (x + 3, top + 20, wide - 6, row))
        top += 38 + max(len(rack.cells) for rack in line) * row
    lefts = tuple(place * (wide + 14) + 8 for place in range(min(columns, len(racks))))
    return HostGrid(len(racks), lefts, tuple(tops), 1, row, top - 10)


def _draw_nvlink_domains(
    canvas: Canvas, rack: RackCells, at: tuple[float, float, float, float]
) -> None:
    """Draw a frame around consecutive hosts of one NVLink domain.

    ``at`` is (x, y, width, height of one row).
    """
    x, y, width, row = at
    start = 0
    for index in range(1, len(rack.cells) + 1):
        same = index < len(rack.cells) and rack.cells[index].domain == rack.cells[start].domain
        if same:
            continue
        # A frame around a single host would repeat the host's own row.
        if index - start > 1:
            title = f"NVLink domain {rack.cells[start].domain}: {index - start} hosts"
            canvas.add_tooltip(
                "domain", (x, y + start * row, width, (index - start) * row - 1), title
            )
        start = index


def _draw_host_row(canvas: Canvas, look: MapStyle, cell: HostCell, at: tuple[float, float]) -> None:
    """Draw the name and the GPUs of a host, with gaps between tensor parallel groups."""
    x, y = at
    placement = look.plan.placement
    per_node = placement.ranks_per_node
    canvas.write_text(x, y + GPU - 2, clip_text(cell.name, 13), role="small")
    x += NAME_WIDTH
    first = cell.node * per_node
    if cell.node < 0:
        for index in range(per_node):
            canvas.draw_box(cell.state, x + index * (GPU + GAP), y, GPU, GPU)
        title = f"{cell.name}: {cell.state}"
    else:
        starts = starts_new_group(placement.dense, "tp", first, per_node)
        inks = [
            look.colors[coordinate]
            for coordinate, ranks in coordinate_runs(look.axis, first, per_node)
            for _ in range(ranks)
        ]
        left = x
        for index, ink in enumerate(inks):
            left += (GAP if starts[index] else GAP_IN_GROUP) if index else 0
            canvas.draw_bar(ink, left, y, GPU, GPU)
            left += GPU
        title = _host_tooltip(look, cell)
    canvas.add_tooltip("hit", (at[0], y - 2, NAME_WIDTH + per_node * (GPU + GAP), GPU + 4), title)


def _host_tooltip(look: MapStyle, cell: HostCell) -> str:
    """Return the tooltip of a host, such as ``r01n01: node rank 0, ranks 0 to 7, pp 0``."""
    per_node = look.plan.placement.ranks_per_node
    first = cell.node * per_node
    coordinates = sorted(
        {coordinate for coordinate, _ in coordinate_runs(look.axis, first, per_node)}
    )
    several = f"{coordinates[0]} to {coordinates[-1]}" if len(coordinates) > 1 else coordinates[0]
    ranks = f"ranks {first} to {first + per_node - 1}" if per_node > 1 else f"rank {first}"
    return f"{cell.name}: node rank {cell.node}, {ranks}, {look.axis.name} {several}"
