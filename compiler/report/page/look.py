"""What the two ways to draw the hosts of a cluster share."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir import AnyPlan, Axis
from parc.compiler.report.page.figure import clipped
from parc.compiler.report.page.hosts import NOWHERE, RackCells


class Look(NamedTuple):
    """What all cells share."""

    plan: AnyPlan
    axis: Axis
    colors: list[str]
    side: int
    """Side of a host's cell, where hosts are cells."""
    named: bool


def rack_name(rack: RackCells, length: int) -> str:
    """The name of a rack in at most ``length`` letters."""
    return "not available" if rack.name == NOWHERE else clipped(rack.name, length)
