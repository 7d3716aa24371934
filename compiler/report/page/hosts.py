"""Hosts of a plan by rack, with their state, node rank and mesh coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from parc.compiler.ir import AnyPlan, Axis, Host, Mesh, Placement
from parc.compiler.report.page.figure import clip_text

State = Literal["used", "idle", "spare", "unavailable"]
UNKNOWN_RACK = ""
"""Rack of an unavailable host, of which only the name is known."""


class Cell(NamedTuple):
    """Host on the map; ``node`` is its node rank, or -1 if no rank runs on it."""

    name: str
    domain: str
    state: State
    node: int


class RackCells(NamedTuple):
    """Hosts of one rack."""

    name: str
    cells: tuple[Cell, ...]


class MapStyle(NamedTuple):
    """Settings that both kinds of map share."""

    plan: AnyPlan
    axis: Axis
    colors: list[str]
    side: int
    """Side of the cell of a host, in units."""
    named: bool


def rack_cells(plan: AnyPlan) -> list[RackCells]:
    """Return all hosts of the spec by rack; unavailable hosts, whose rack is unknown, come last."""
    cluster = plan.problem.cluster
    nodes = {host.name: node for node, host in enumerate(plan.placement.hosts)}
    racks: dict[str, list[Cell]] = {}
    for rack in cluster.racks:
        racks[rack.name] = [_cell(host, nodes) for host in rack.hosts]
    for host in cluster.spare:
        cell = Cell(host.name, host.nvlink_domain, "spare", -1)
        racks.setdefault(host.rack, []).append(cell)
    away = tuple(Cell(name, name, "unavailable", -1) for name in cluster.unavailable)
    known = [RackCells(name, tuple(cells)) for name, cells in racks.items()]
    return [*known, RackCells(UNKNOWN_RACK, away)] if away else known


def _cell(host: Host, nodes: dict[str, int]) -> Cell:
    node = nodes.get(host.name, -1)
    return Cell(host.name, host.nvlink_domain, "used" if node >= 0 else "idle", node)


def colored_axis(placement: Placement) -> Axis:
    """Return the axis that sets the colours: pp, or the slowest-varying axis of size 2 or more."""
    pipeline = placement.dense.axis("pp")
    if pipeline.size > 1:
        return pipeline
    split = [axis for axis in placement.dense.axes if axis.size > 1]
    return split[-1] if split else pipeline


def coordinate_runs(axis: Axis, first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield (coordinate, number of ranks) of consecutive ranks with one coordinate on ``axis``.

    The ranks are ``first`` to ``first + count - 1``. Each step goes to the end of a stride, so that
    a host inside one stage costs one step.
    """
    rank, end = first, first + count
    while rank < end:
        until = min(end, (rank // axis.stride + 1) * axis.stride)
        yield rank // axis.stride % axis.size, until - rank
        rank = until


def starts_new_group(mesh: Mesh, name: str, first: int, count: int) -> list[bool]:
    """Return per rank: True if its ``name`` group differs from that of the previous rank."""
    axis = mesh.axis(name)
    wide = axis.stride * axis.size
    numbers = [
        (rank // wide, rank % axis.stride) if axis.size > 1 else (rank, 0)
        for rank in range(first, first + count)
    ]
    return [True, *(one != other for one, other in pairwise(numbers))]


def rack_name(rack: RackCells, length: int) -> str:
    """Return the name of a rack, clipped to ``length`` characters."""
    return "unavailable" if rack.name == UNKNOWN_RACK else clip_text(rack.name, length)
