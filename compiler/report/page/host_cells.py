"""Map of a large cluster: each rack is a block of cells, each host a cell."""

from __future__ import annotations

from parc.compiler.report.page.figure import Canvas
from parc.compiler.report.page.hosts import Cell, MapStyle, RackCells, coordinate_runs, rack_name


def draw_cells(canvas: Canvas, look: MapStyle, racks: list[RackCells]) -> float:
    """Draw each rack as a block of cells and each host as a cell; return the height.

    A host with several coordinates is striped.
    """
    side, named = look.side, look.named
    most = max(len(rack.cells) for rack in racks)
    across = _across(most, side if named else 0)
    deep = -(-most // across)
    pad, head = (4, 15) if named else (2, 0)
    wide, high = across * (side + 1) + 2 * pad - 1, deep * (side + 1) + 2 * pad - 1 + head
    columns = max(1, (canvas.width + 6) // (wide + 6))
    for index, rack in enumerate(racks):
        x, y = index % columns * (wide + 6), index // columns * (high + 6)
        canvas.area("rack", (x + 0.5, y + 0.5, wide - 1, high - 1), _rack_title(look, rack))
        if named:
            canvas.word(x + pad, y + 13, rack_name(rack, wide // 6), role="small")
        for number, cell in enumerate(rack.cells):
            left = x + pad + number % across * (side + 1)
            top = y + pad + head + number // across * (side + 1)
            _host_cell(canvas, look, cell, (left, top))
    return float(-(-len(racks) // columns) * (high + 6) - 6)


def _across(cells: int, side: int) -> int:
    """Return the number of cells per row of a rack.

    The block is about square, at least as wide as the name of the rack, and its last row is full if
    possible. ``side`` is the side of a cell, or 0 if no names are drawn.
    """
    least = max(1, round(cells**0.5), min(cells, -(-46 // (side + 1)) if side else 1))
    return next((wide for wide in range(least, 2 * least + 1) if cells % wide == 0), least)


def _rack_title(look: MapStyle, rack: RackCells) -> str:
    """Return the tooltip of a rack: ``r01: 16 hosts, node ranks 0 to 15, pp 0 to 3``."""
    used = [cell for cell in rack.cells if cell.node >= 0]
    text = f"{rack_name(rack, 60)}: {len(rack.cells)} hosts"
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


def _host_cell(canvas: Canvas, look: MapStyle, cell: Cell, at: tuple[float, float]) -> None:
    x, y = at
    side, per_node = look.side, look.plan.placement.ranks_per_node
    if cell.node < 0:  # no ranks: the colour shows the state
        canvas.box(cell.state, x, y, side, side)
        return
    for coordinate, ranks in coordinate_runs(look.axis, cell.node * per_node, per_node):
        wide = side * ranks / per_node
        canvas.bar(look.colors[coordinate], x, y, wide, side)
        x += wide
