"""Which host is where and what runs on it, as the picture of the cluster shows it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from parc.compiler.ir import AnyPlan, Axis, Host, Mesh, Placement
from parc.compiler.report.page.figure import clip_text

State = Literal["used", "idle", "spare", "unavailable"]
UNKNOWN_RACK = ""
"""Rack of a host of which only the name is known."""


class Cell(NamedTuple):
    """One host: ``node`` is its node rank, -1 where no rank runs on it."""

    name: str
    domain: str
    state: State
    node: int


class RackCells(NamedTuple):
    """Hosts under one leaf."""

    name: str
    cells: tuple[Cell, ...]


class MapStyle(NamedTuple):
    """What all cells share."""

    plan: AnyPlan
    axis: Axis
    colors: list[str]
    side: int
    """Side of a host's cell, where hosts are cells."""
    named: bool


def rack_cells(plan: AnyPlan) -> list[RackCells]:
    """Every host that the spec names, by rack; unavailable ones, whose rack is gone, at the end."""
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
    """The axis that colours stand for: pipeline stages, else the slowest axis that is divided."""
    pipeline = placement.dense.axis("pp")
    if pipeline.size > 1:
        return pipeline
    split = [axis for axis in placement.dense.axes if axis.size > 1]
    return split[-1] if split else pipeline


def coordinate_runs(axis: Axis, first: int, count: int) -> Iterator[tuple[int, int]]:
    """(coordinate, ranks) of ``count`` ranks from ``first`` on, neighbours that are equal in one.

    The axis is walked by its stride, so that a host of whole stages costs one step.
    """
    rank, end = first, first + count
    while rank < end:
        until = min(end, (rank // axis.stride + 1) * axis.stride)
        yield rank // axis.stride % axis.size, until - rank
        rank = until


def starts_new_group(mesh: Mesh, name: str, first: int, count: int) -> list[bool]:
    """For each of ``count`` ranks whether it is in another group over ``name`` than the last."""
    axis = mesh.axis(name)
    wide = axis.stride * axis.size
    numbers = [
        (rank // wide, rank % axis.stride) if axis.size > 1 else (rank, 0)
        for rank in range(first, first + count)
    ]
    return [True, *(one != other for one, other in pairwise(numbers))]


def rack_name(rack: RackCells, length: int) -> str:
    """The name of a rack in at most ``length`` letters."""
    return "not available" if rack.name == UNKNOWN_RACK else clip_text(rack.name, length)
