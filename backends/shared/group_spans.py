"""Process groups of a placement as spans of ranks, for JSON files that programs read."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import GroupFamily, Mesh, Placement

EXPERT_NAMES = {"tp": "etp", "ep": "ep", "dp": "edp", "dp_shard": "edp_shard", "pp": "pp"}
"""Axis of the expert mesh -> its name in emitted files, distinct from the dense axes."""


def describe_families(placement: Placement) -> dict[str, dict[str, Any]]:
    """Return the ranks of each family of process groups in span form, by family name."""
    return {one.name: _describe(one, placement.mesh(one.mesh)) for one in placement.families}


def _describe(family: GroupFamily, mesh: Mesh) -> dict[str, Any]:
    """Return one family; ``within`` has [size, stride] per axis of a group.

    ``across`` has the same for the axes that distinguish the groups.
    """
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
