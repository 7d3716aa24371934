"""Text of ``rankmap.json``: coordinates of all ranks, hosts, meshes and process groups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from parc.backends.shared.group_spans import EXPERT_NAMES, group_spans_by_family
from parc.compiler.ir import AnyPlan, Host, Placement
from parc.compiler.ir.placement import SUB_AXES

FORMAT = 1


def rankmap_json(plan: AnyPlan) -> str:
    """Return the text of ``rankmap.json``.

    Keys are sorted, and every host, mesh, group family and column is on a line of its own, so that
    a diff of two plans is readable.
    """
    placement, problem = plan.placement, plan.problem
    expert = [(EXPERT_NAMES.get(axis.name, axis.name), axis) for axis in placement.expert.axes]
    meshes = {
        "dense": [_axis_as_json(axis.name, axis.size, axis.stride) for axis in placement.dense.axes]
    }
    if not placement.has_one_mesh:
        meshes["expert"] = [_axis_as_json(name, axis.size, axis.stride) for name, axis in expert]
    parts = {
        "format": str(FORMAT),
        "framework": _dumps(problem.framework),
        "groups": _json_object(group_spans_by_family(placement)),
        "hosts": _join_json_array(map(_host_json, placement.hosts)),
        "meshes": _json_object(meshes),
        "order": _dumps(placement.order),
        "ranks": _join_json_object(_coordinate_columns(placement)),
        "ranks_per_node": str(placement.ranks_per_node),
        "sizes": _dumps(_axis_sizes(placement)),
        "version": _dumps(problem.version(problem.framework)),
        "world": str(placement.dense.world),
    }
    body = ",\n".join(f'"{key}": {text}' for key, text in sorted(parts.items()))
    return f"{{\n{body}\n}}\n"


def _axis_sizes(placement: Placement) -> dict[str, int]:
    """Return axis -> size, for all axes of the dense and the expert mesh."""
    dense = placement.dense
    sizes = {axis.name: axis.size for axis in dense.axes}
    # A mesh may contain an axis as two parts, such as cp-a2a and cp-p2p. Add the size of the whole.
    sizes |= {
        whole: dense.group_size(whole) for whole, parts in SUB_AXES.items() if {*parts} & {*sizes}
    }
    axes = () if placement.has_one_mesh else placement.expert.axes
    return sizes | {EXPERT_NAMES.get(axis.name, axis.name): axis.size for axis in axes}


def _axis_as_json(name: str, size: int, stride: int) -> dict[str, Any]:
    """Return one axis of a mesh as a JSON object."""
    return {"axis": name, "size": size, "stride": stride}


def _host_json(host: Host) -> str:
    """Return the JSON text of ``host``."""
    name, domain, rack = _dumps(host.name), _dumps(host.nvlink_domain), _dumps(host.rack)
    return f'{{"name":{name},"nvlink_domain":{domain},"rack":{rack}}}'


def _coordinate_columns(placement: Placement) -> dict[str, str]:
    """Return axis -> JSON text of the coordinates of all ranks along that axis."""
    # Coordinates are few different numbers, so each number is converted to text only once.
    digits = [str(number) for number in range(placement.dense.world)]
    return {
        name: f"[{','.join(map(digits.__getitem__, column))}]"
        for name, column in placement.rank_map_columns.items()
    }


def _json_object(items: Mapping[str, Any]) -> str:
    """Return ``items`` as JSON text of an object, one entry per line."""
    return _join_json_object({key: _dumps(value) for key, value in items.items()})


def _join_json_object(items: Mapping[str, str]) -> str:
    """Return the JSON text of an object, one entry per line; the values are JSON text already."""
    lines = (f'"{key}": {text}' for key, text in sorted(items.items()))
    return "{\n" + ",\n".join(lines) + "\n}"


def _join_json_array(items: Iterable[str]) -> str:
    """Return the JSON text of an array, one item per line; the items are JSON text already."""
    return "[\n" + ",\n".join(items) + "\n]"


_dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
