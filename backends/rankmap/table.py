"""rankmap.csv: a row a rank."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TypeVar

from parc.compiler.ir import Mesh, Placement, Plan

Cell = TypeVar("Cell", int, str)

HEADER = (
    *("rank", "node_rank", "host", "local_rank", "gpu", "rack", "nvlink_domain"),
    *("pp", "dp", "cp", "tp", "ep", "etp", "edp"),
)


def table(plan: Plan) -> str:
    """The CSV text; ``gpu`` is the device index that the local rank uses."""
    placement = plan.placement
    each, world = placement.ranks_per_node, placement.dense.world
    local = list(range(each)) * (world // each)
    columns = (
        range(world),
        _by_host(range(len(placement.hosts)), each),
        _by_host([host.name for host in placement.hosts], each),
        local,
        local,
        _by_host([host.rack for host in placement.hosts], each),
        _by_host([host.nvlink_domain for host in placement.hosts], each),
        *coordinates(placement).values(),
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def coordinates(placement: Placement) -> dict[str, list[int]]:
    """Column name -> coordinate of every rank, in the order of the header."""
    dense, expert = placement.dense, placement.expert
    return {
        "pp": _column(dense, "pp"),
        "dp": _column(dense, "dp"),
        "cp": _column(dense, "cp"),
        "tp": _column(dense, "tp"),
        "ep": _column(expert, "ep"),
        "etp": _column(expert, "tp"),
        "edp": _column(expert, "dp"),
    }


def _column(mesh: Mesh, name: str) -> list[int]:
    """Coordinate along ``name`` of ranks 0, 1, 2, ..."""
    axis = mesh.axis(name)
    period = [step for step in range(axis.size) for _ in range(axis.stride)]
    return period * (mesh.world // len(period))


def _by_host(cells: Iterable[Cell], each: int) -> list[Cell]:
    return [cell for cell in cells for _ in range(each)]
