"""Settings of a plan that the rank map contains, and consistency of its process groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.verify.read_emitted import DOCUMENT, TABLE, read_document, read_table

EXPERT_AXES = {"etp": "tp", "edp": "dp", "edp_shard": "dp_shard", "egtp": "gtp"}
"""Axis of the expert mesh in rankmap.json -> its name in plan.json."""
PARTS = {"cp": ("cp_a2a", "cp_p2p"), "dp": ("gtp", "dp_shard", "dp_replicate")}
"""Axis -> the axes into which it is split; a mesh contains either the axis or these axes."""
KEYS = {
    *("format", "framework", "groups", "hosts", "meshes", "order"),
    *("ranks", "ranks_per_node", "sizes", "version", "world"),
}
GROUP_KEYS = {"across", "axes", "count", "mesh", "size", "within"}
FOREIGN = "problem.launch.args"


def read_table_settings(text: str) -> Iterator[DerivedSetting]:
    """Yield the hosts, racks and rank counts in ``rankmap.csv``."""
    table = read_table(text)
    ranks = max(1, table["node_rank"].count(table["node_rank"][0]))
    places = [
        (host, rack, domain)
        for host, rack, domain in zip(
            table["host"][::ranks],
            table["rack"][::ranks],
            table["nvlink_domain"][::ranks],
            strict=True,
        )
    ]
    yield from _read_host_settings(places, TABLE, 2)
    yield DerivedSetting("placement.ranks_per_node", ranks, TABLE, 2, stated=True)


def read_document_settings(text: str, serving: bool) -> Iterator[DerivedSetting]:
    """Yield the framework, hosts, rank order, meshes and rank counts in ``rankmap.json``.

    ``serving`` is True for the rank map of a serving job.
    """
    tree = read_document(text)
    framework, version = tree.get("framework"), tree.get("version")

    def stated(path: str, key: str, accepts: Callable[[Any], bool] | None = None) -> DerivedSetting:
        line = _line_of_key(text, key)
        return DerivedSetting(path, tree.get(key), DOCUMENT, line, accepts=accepts, stated=True)

    yield stated("problem.framework", "framework")
    yield stated(
        "problem.versions",
        "version",
        lambda pairs: [framework, version] in [list(pair) for pair in pairs],
    )
    yield stated("placement.order", "order")
    yield stated("placement.ranks_per_node", "ranks_per_node")
    yield stated("layout.gpus" if serving else "layout.world", "world")
    hosts = [one if isinstance(one, dict) else {} for one in tree["hosts"]]
    places = [(one.get("name"), one.get("rack"), one.get("nvlink_domain")) for one in hosts]
    yield from _read_host_settings(places, DOCUMENT, _line_of_key(text, "hosts"))
    meshes = tree.get("meshes")
    for name, mesh in meshes.items() if isinstance(meshes, dict) else ():
        line = _line_of_key(text, "meshes")
        yield DerivedSetting(f"placement.{name}", _mesh_axes(mesh), DOCUMENT, line, stated=True)
    for key in sorted(tree.keys() - KEYS):
        yield DerivedSetting(FOREIGN, f"the key {key}", DOCUMENT, needed="")


def _read_host_settings(
    places: list[tuple[Any, Any, Any]], file: str, line: int
) -> Iterator[DerivedSetting]:
    """Yield the names of the hosts by node rank, and their racks and NVLink domains."""
    hosts = [name for name, _, _ in places]
    yield DerivedSetting("placement.hosts", hosts, file, line, stated=True)

    def is_planned(racks: Any) -> bool:
        planned = {
            (host, rack["name"], domain)
            for rack in racks
            for host, domain in zip(rack["hosts"], rack["nvlink_domains"], strict=True)
        }
        return planned.issuperset(places)

    found = sorted({str(rack) for _, rack, _ in places})
    yield DerivedSetting(
        "problem.cluster.racks", found, file, line, accepts=is_planned, stated=True
    )


def _mesh_axes(mesh: Any) -> Any:
    """Return the axes of a mesh with the same keys and names as in plan.json."""
    if not isinstance(mesh, list) or not all(isinstance(axis, dict) for axis in mesh):
        return mesh
    return [
        {
            "name" if key == "axis" else key: EXPERT_AXES.get(value, value)
            if key == "axis" and isinstance(value, str)
            else value
            for key, value in axis.items()
        }
        for axis in mesh
    ]


def verify_groups_and_sizes(text: str, sink: Sink) -> None:
    """Report sizes and groups that do not follow from the meshes (A06)."""
    tree = read_document(text)
    meshes = tree.get("meshes")
    listed = meshes.items() if isinstance(meshes, dict) else ()
    found = {
        name: {axis["axis"]: (axis["size"], axis["stride"]) for axis in mesh}
        for name, mesh in listed
        if isinstance(mesh, list) and all(map(_is_axis, mesh))
    }
    if "dense" not in found or len(found) < len(listed):
        message = "meshes lacks the mesh dense, or an axis lacks its name, size or stride"
        sink.report("A06", message, span=Span(DOCUMENT, 1, 1))
        return
    # Without routed experts, both kinds of layers share one mesh, and groups of experts use it.
    found.setdefault("expert", found["dense"])
    _verify_sizes(tree["sizes"], {**found["dense"], **found["expert"]}, sink)
    for name, group in sorted(tree["groups"].items()):
        if not isinstance(group, dict) or not _matches_axes(group, found):
            message = f"groups.{name} does not follow from its axes and its mesh"
            sink.report("A06", message, span=Span(DOCUMENT, _line_of_group(text, name), 1))


def _is_axis(axis: Any) -> bool:
    return (
        isinstance(axis, dict)
        and isinstance(axis.get("axis"), str)
        and all(type(axis.get(name)) is int for name in ("size", "stride"))
    )


def _verify_sizes(sizes: Mapping[str, Any], axes: Mapping[Any, Any], sink: Sink) -> None:
    expected = {name: size for name, (size, _) in axes.items()}
    for whole, parts in PARTS.items():
        if {*parts} & {*expected} and whole not in expected:
            expected[whole] = prod(expected.get(part, 1) for part in parts)
    for name in sorted({*sizes, *map(str, expected)}):
        if sizes.get(name) != expected.get(name):
            message = f"sizes.{name} is {sizes.get(name)!r:.40}, the meshes have"
            sink.report("A06", f"{message} {expected.get(name)!r:.40}", span=Span(DOCUMENT, 1, 1))


def _matches_axes(group: Mapping[str, Any], meshes: Mapping[str, Mapping[Any, Any]]) -> bool:
    """Return True if size, number and spans of a group family match the axes of its mesh."""
    mesh, names = meshes.get(str(group.get("mesh"))), group.get("axes")
    if group.keys() != GROUP_KEYS or mesh is None or not isinstance(names, list):
        return False
    axes = {str(name): span for name, span in mesh.items()}
    if not all(isinstance(size, int) for span in axes.values() for size in span):
        return False
    # Groups of experts in the dense mesh have the names of the dense axes.
    inside = [name if name in axes else EXPERT_AXES.get(str(name)) for name in names]
    if not {*inside} <= {*axes}:
        return False
    within = [list(axes[str(name)]) for name in inside]
    others = [list(span) for name, span in axes.items() if name not in inside]
    size, count = (prod(span[0] for span in spans) for spans in (within, others))
    expected = {
        "size": size,
        "count": count,
        "within": [span for span in within if span[0] > 1],
        "across": [span for span in others if span[0] > 1],
    }
    return all(group.get(key) == value for key, value in expected.items())


def _line_of_key(text: str, key: str) -> int:
    """Return the line of a key of the document, as PARC writes it; 1 if it is written otherwise."""
    at = text.find(f'\n"{key}":')
    return text.count("\n", 0, at) + 2 if at >= 0 else 1


def _line_of_group(text: str, name: str) -> int:
    at = text.find(f'\n"{name}": {{"across"')
    return text.count("\n", 0, at) + 2 if at >= 0 else 1
