"""Process groups in span form: pairs of [size, stride] that generate the ranks of all groups."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir import GroupFamily, Mesh, Placement

EXPERT_NAMES = {
    "tp": "etp",
    "ep": "ep",
    "dp": "edp",
    "dp_shard": "edp_shard",
    "gtp": "egtp",
    "pp": "pp",
}
"""Axis of the expert mesh -> its name in emitted files, distinct from the dense axes."""


def group_spans_by_family(placement: Placement) -> dict[str, dict[str, Any]]:
    """Return a JSON description of the process groups of every family, by the name of the family.

    A family is a set of process groups along the same mesh axes. ``_describe_family`` defines the
    description.
    """
    return {one.name: _describe_family(one, placement.mesh(one.mesh)) for one in placement.families}


def _describe_family(family: GroupFamily, mesh: Mesh) -> dict[str, Any]:
    """Return a JSON description of the process groups of ``family``, which lie on ``mesh``.

    A group varies along the axes of its family. ``within`` contains a pair [size, stride] for each
    of these axes; the pairs generate the ranks of the first group. ``across`` contains the pairs of
    all other axes; these pairs generate the first rank of every group.
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
