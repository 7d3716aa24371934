"""rankmap.json: coordinates of all ranks, hosts, meshes and groups (see README.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from parc.backends.shared.group_spans import EXPERT_NAMES, describe_families
from parc.compiler.ir import AnyPlan, Host, Placement
from parc.compiler.ir.placement import SUB_AXES

FORMAT = 1


def rankmap_json(plan: AnyPlan) -> str:
    """Return the JSON text: sorted keys, one line per host, mesh, group family and column."""
    placement, problem = plan.placement, plan.problem
    expert = [(EXPERT_NAMES.get(axis.name, axis.name), axis) for axis in placement.expert.axes]
    meshes = {"dense": [_axis(axis.name, axis.size, axis.stride) for axis in placement.dense.axes]}
    if not placement.one_mesh:
        meshes["expert"] = [_axis(name, axis.size, axis.stride) for name, axis in expert]
    parts = {
        "format": str(FORMAT),
        "framework": _dumps(problem.framework),
        "groups": _mapping(describe_families(placement)),
        "hosts": _sequence(map(_host, placement.hosts)),
        "meshes": _mapping(meshes),
        "order": _dumps(placement.order),
        "ranks": _entries(_columns(placement)),
        "ranks_per_node": str(placement.ranks_per_node),
        "sizes": _dumps(_sizes(placement)),
        "version": _dumps(problem.version(problem.framework)),
        "world": str(placement.dense.world),
    }
    body = ",\n".join(f'"{key}": {text}' for key, text in sorted(parts.items()))
    return f"{{\n{body}\n}}\n"


def _sizes(placement: Placement) -> dict[str, int]:
    dense = placement.dense
    sizes = {axis.name: axis.size for axis in dense.axes}
    # The mesh may hold an axis as two parts, such as cp-a2a and cp-p2p. List its full size too.
    sizes |= {whole: dense.size(whole) for whole, parts in SUB_AXES.items() if {*parts} & {*sizes}}
    axes = () if placement.one_mesh else placement.expert.axes
    return sizes | {EXPERT_NAMES.get(axis.name, axis.name): axis.size for axis in axes}


def _axis(name: str, size: int, stride: int) -> dict[str, Any]:
    return {"axis": name, "size": size, "stride": stride}


def _host(host: Host) -> str:
    name, domain, rack = _dumps(host.name), _dumps(host.nvlink_domain), _dumps(host.rack)
    return f'{{"name":{name},"nvlink_domain":{domain},"rack":{rack}}}'


def _columns(placement: Placement) -> dict[str, str]:
    """Return axis -> coordinates of all ranks as JSON.

    The coordinates are few different numbers, so each number is converted to text only once.
    """
    digits = [str(number) for number in range(placement.dense.world)]
    return {
        name: f"[{','.join(map(digits.__getitem__, column))}]"
        for name, column in placement.columns.items()
    }


def _mapping(items: Mapping[str, Any]) -> str:
    """Return a JSON object with one entry per line."""
    return _entries({key: _dumps(value) for key, value in items.items()})


def _entries(items: Mapping[str, str]) -> str:
    """Return a JSON object of values that are JSON text, with one entry per line."""
    lines = (f'"{key}": {text}' for key, text in sorted(items.items()))
    return "{\n" + ",\n".join(lines) + "\n}"


def _sequence(items: Iterable[str]) -> str:
    """Return a JSON array of items that are JSON text, with one item per line."""
    return "[\n" + ",\n".join(items) + "\n]"


_dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
