"""rankmap.csv: a row a rank."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TypeVar

from parc.compiler.ir import AnyPlan

Cell = TypeVar("Cell", int, str)

PLACE = ("rank", "node_rank", "host", "local_rank", "gpu", "rack", "nvlink_domain")
"""Columns before the coordinates, which are those of the framework."""


def table(plan: AnyPlan) -> str:
    """The CSV text; ``gpu`` is the device index that the local rank uses."""
    placement = plan.placement
    each, world = placement.ranks_per_node, placement.dense.world
    local = list(range(each)) * (world // each)
    gpus = list(placement.devices or range(each)) * (world // each)
    columns = (
        range(world),
        _by_host(range(len(placement.hosts)), each),
        _by_host([host.name for host in placement.hosts], each),
        local,
        gpus,
        _by_host([host.rack for host in placement.hosts], each),
        _by_host([host.nvlink_domain for host in placement.hosts], each),
        *placement.columns.values(),
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*PLACE, *placement.columns))
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _by_host(cells: Iterable[Cell], each: int) -> list[Cell]:
    return [cell for cell in cells for _ in range(each)]
