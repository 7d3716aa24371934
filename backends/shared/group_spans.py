"""Process groups in span form: pairs of [size, stride] that generate the ranks of all groups."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import GroupFamily, Mesh, Placement

EXPERT_NAMES = {"tp": "etp", "ep": "ep", "dp": "edp", "dp_shard": "edp_shard", "pp": "pp"}
"""Axis of the expert mesh -> its name in emitted files, distinct from the dense axes."""


def group_spans_by_family(placement: Placement) -> dict[str, dict[str, Any]]:
    """Return name -> JSON description of the process groups, for every family of process groups.

    The groups of a family are described by [size, stride] pairs, as ``_describe_family`` defines.
    """
    return {one.name: _describe_family(one, placement.mesh(one.mesh)) for one in placement.families}


def _describe_family(family: GroupFamily, mesh: Mesh) -> dict[str, Any]:
    """Return a JSON description of the process groups of ``family``, a set of axes of ``mesh``.

    The key ``within`` has one [size, stride] pair per axis of the family; the pairs generate the
    ranks of the first group. The key ``across`` has the pairs of all other axes; they generate the
    first rank of every group.
    """
    # 131,072 ranks have about 300,000 groups; spans describe them in a few numbers.
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
