"""The process groups of a placement as spans of ranks, for files that programs read."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import Family, Mesh, Placement

EXPERT_NAMES = {"tp": "etp", "ep": "ep", "dp": "edp", "dp_shard": "edp_shard", "pp": "pp"}
"""Axis of the expert mesh -> column of the rank map."""


def families(placement: Placement) -> dict[str, dict[str, Any]]:
    """Name of a process group -> its ranks in span form."""
    return {one.name: _family(one, placement.mesh(one.mesh)) for one in placement.families}


def _family(family: Family, mesh: Mesh) -> dict[str, Any]:
    """``within``: [size, stride] of the axes of a group; ``across``: of those between groups."""
    within = mesh.select_axes(*family.axes)
    across = [axis for axis in mesh.axes if axis not in within]
    expert = family.mesh == "expert"
    names = [EXPERT_NAMES.get(axis.name, axis.name) if expert else axis.name for axis in within]
    size = 1
    for axis in within:
        size *= axis.size
    return {
        "across": [[axis.size, axis.stride] for axis in across if axis.size > 1],
        "axes": names,
        "count": mesh.world // size,
        "mesh": family.mesh,
        "size": size,
        "within": [[axis.size, axis.stride] for axis in within if axis.size > 1],
    }
