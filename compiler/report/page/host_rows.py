"""Map of a small cluster: each rack is a column of hosts, each host a row of GPUs."""

from __future__ import annotations

from parc.compiler.report.page.figure import Canvas, clip_text
from parc.compiler.report.page.hosts import (
    Cell,
    MapStyle,
    RackCells,
    coordinate_runs,
    rack_name,
    starts_new_group,
)

GPU, GAP, GROUP_GAP = 12, 4, 1
"""Side of a GPU, gap between tensor parallel groups, and gap within a group, in units."""
NAME_WIDTH = 84


def draw_rows(canvas: Canvas, look: MapStyle, racks: list[RackCells]) -> float:
    """Draw each rack as a column of hosts and each host as a row of GPUs; return the height."""
    per_node = look.plan.placement.ranks_per_node
    row = GPU + 5
    wide = NAME_WIDTH + per_node * (GPU + GAP) + 16
    columns = max(1, (canvas.width + 14) // (wide + 14))
    top = 0.0
    for start in range(0, len(racks), columns):
        line = racks[start : start + columns]
        for place, rack in enumerate(line):
            x = place * (wide + 14)
            canvas.area("rack", (x + 0.5, top + 0.5, wide - 1, 25 + len(rack.cells) * row), "")
            canvas.word(x + 8, top + 15, rack_name(rack, 28), role="strong")
            for index, cell in enumerate(rack.cells):
                _host_row(canvas, look, cell, (x + 8, top + 22 + index * row))
            _domains(canvas, rack, (x + 3, top + 20, wide - 6, row))
        top += 38 + max(len(rack.cells) for rack in line) * row
    return top - 10


def _domains(canvas: Canvas, rack: RackCells, at: tuple[float, float, float, float]) -> None:
    """Draw a frame around consecutive hosts of one NVLink domain.

    ``at`` is x, y, width and row height.
    """
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


def _host_row(canvas: Canvas, look: MapStyle, cell: Cell, at: tuple[float, float]) -> None:
    """Draw the name and the GPUs of a host; GPUs of one tensor parallel group have no gap."""
    x, y = at
    placement = look.plan.placement
    per_node = placement.ranks_per_node
    canvas.word(x, y + GPU - 2, clip_text(cell.name, 13), role="small")
    x += NAME_WIDTH
    first = cell.node * per_node
    if cell.node < 0:
        for index in range(per_node):
            canvas.box(cell.state, x + index * (GPU + GAP), y, GPU, GPU)
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
            left += (GAP if starts[index] else GROUP_GAP) if index else 0
            canvas.bar(ink, left, y, GPU, GPU)
            left += GPU
        title = _title(look, cell)
    canvas.area("hit", (at[0], y - 2, NAME_WIDTH + per_node * (GPU + GAP), GPU + 4), title)


def _title(look: MapStyle, cell: Cell) -> str:
    """Return the tooltip of a host: ``r01n01: node rank 0, ranks 0 to 7, pp 0``."""
    per_node = look.plan.placement.ranks_per_node
    first = cell.node * per_node
    coordinates = sorted(
        {coordinate for coordinate, _ in coordinate_runs(look.axis, first, per_node)}
    )
    several = f"{coordinates[0]} to {coordinates[-1]}" if len(coordinates) > 1 else coordinates[0]
    ranks = f"ranks {first} to {first + per_node - 1}" if per_node > 1 else f"rank {first}"
    return f"{cell.name}: node rank {cell.node}, {ranks}, {look.axis.name} {several}"
