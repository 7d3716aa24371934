"""Conditions on the values that members of a plugin have or return, beyond their types.

A check returns the rest of the sentence "MEMBER of DISTRIBUTION ..."; the text is empty for a
valid value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import Any

from parc.backends.plugin_error import quote_value
from parc.compiler.ir import Artifact, KernelStack, Layout, Mesh, PipelineSplit, Problem
from parc.compiler.ir.finding import Finding
from parc.compiler.ir.gpu_generation import Efficiency
from parc.compiler.ir.placement import SUB_AXES
from parc.compiler.ir.rule import WORLD_FIELDS, Rule

Check = Callable[[Any, tuple[Any, ...], Any], str]
"""Function of (object with the member, arguments of the call, result) that returns a defect."""
NOT_NEGATIVE = frozenset(
    (
        *("training_memory_model", "program_traffic", "captured_graphs", "constants", "stack"),
        *("default_batch", "context_tokens", "step_tokens_to_try", "api_ports"),
        *("expert_parallel_sizes", "decode_context_sizes"),
    )
)
"""Members whose values contain no negative numbers."""
LAST_PORT = 65535
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MESH_FIELDS = (*WORLD_FIELDS, "ep", "etp", "egtp", "cp_a2a", "zero_stage", "order")
"""Fields of a layout from which frameworks build their meshes."""
_AXES = frozenset(("tp", "cp", "ep", "dp", "pp"))
_RATES = ("network", "dp_overlap")
"""Fields of ``Efficiency`` that are fractions."""
_FEATURE = re.compile(r"lora|kv_offload|speculative:[\w-]+|pool:(?:prefill|decode)")


def _needs_items(target: object, args: tuple[Any, ...], found: Collection[object]) -> str:
    return "" if found else f"returned {quote_value(found)}, must contain at least one value"


def _rank_orders(target: object, args: tuple[Any, ...], found: tuple[str, ...]) -> str:
    for order in found:
        names = order.split("-")
        if not _AXES.issuperset(names) or len(set(names)) < len(names):
            axes = ", ".join(sorted(_AXES))
            return f"returned the order {quote_value(order)}, must list the axes {axes} once each"
    return _needs_items(target, args, found)


def _device_meshes(target: object, args: tuple[Any, ...], found: tuple[Mesh, Mesh]) -> str:
    for mesh, kind, needed in (
        (found[0], "dense", ("tp", "cp", "dp", "pp")),
        (found[1], "expert", ("tp", "ep", "dp", "pp")),
    ):
        names = {axis.name for axis in mesh.axes}
        missing = [one for one in needed if names.isdisjoint((one, *SUB_AXES.get(one, ())))]
        if missing:
            return (
                f"returned a mesh of the {kind} layers without the axes {', '.join(missing)}; "
                "axes of size 1 are needed too"
            )
        for faster, axis in pairwise(mesh.axes):
            if axis.stride != faster.stride * faster.size:
                return f"returned a {kind} mesh whose axis {axis.name} has a wrong stride"
    return ""


def _families(target: object, args: tuple[Any, ...], found: tuple[Any, ...]) -> str:
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        return f"returned two families of the same name: {', '.join(names)}"
    axes = _AXES | {
        "gtp",
        "replica",
        "pcp",
        "dcp",
        *(name for one in SUB_AXES.values() for name in one),
    }
    for one in found:
        unknown = set(one.axes) - axes
        if unknown or not one.axes:
            return f"returned the family {one.name} over unknown axes: {quote_value(one.axes)}"
    return "" if any(one.column for one in found) else "returned no family with column=True"


def _split(target: object, args: tuple[Any, ...], found: PipelineSplit | None) -> str:
    """Compare the split with the model and with the numbers of stages and chunks."""
    if found is None:
        return ""
    problem, old = args[0], args[1]
    old_split = isinstance(old, PipelineSplit)
    pp = len(old.chunks) if old_split else old
    vpp = len(old.chunks[0]) if old_split else args[2]
    counts = [len(stage) for stage in found.chunks]
    if counts != [vpp] * pp:
        return f"returned {counts} model chunks per stage, must return {vpp} for each of {pp}"
    chunks = [chunk for stage in found.chunks for chunk in stage]
    covered = sorted(
        layer for one in chunks for layer in range(one.first_layer, one.first_layer + one.layers)
    )
    if covered != list(range(problem.model.layers)) or any(one.layers < 0 for one in chunks):
        return (
            f"returned a split of {len(covered)} layers; it must contain each of the "
            f"{problem.model.layers} layers of the model once"
        )
    return ""


def _vocabulary(target: object, args: tuple[Any, ...], found: int) -> str:
    least = args[0].model.vocab
    return "" if found >= least else f"returned {found}, the vocabulary has {least} entries"


def _variables(target: object, args: tuple[Any, ...], found: Iterable[tuple[str, ...]]) -> str:
    for name, *_ in found:
        if not _VARIABLE.fullmatch(name):
            return f"returned {quote_value(name)}, which is not a name of an environment variable"
    return ""


def _artifacts(target: Any, args: tuple[Any, ...], found: tuple[Artifact, ...]) -> str:
    name = target.name
    paths = [one.path for one in found]
    for one in found:
        parts = one.path.split("/")
        inside = parts[0].partition(".")[0] == name and {"", ".", ".."}.isdisjoint(parts)
        if not inside or "\\" in one.path:
            return f"returned the file {quote_value(one.path)}, must be in the folder {name}"
        if not _is_utf8(one.path + one.text):
            return f"returned the file {quote_value(one.path)}, whose text is not UTF-8"
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        return f"returned the file {quote_value(twice)} twice"
    return ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _router(target: Any, args: tuple[Any, ...], found: Artifact) -> str:
    return "" if found.path == "router.sh" else f"returned the file {quote_value(found.path)}"


def _stack(target: object, args: tuple[Any, ...], found: KernelStack) -> str:
    booleans = {name for name, kind in Efficiency.__annotations__.items() if kind == "bool"}
    known = sorted(name for name in booleans if not name.startswith("measured"))
    for name in found.properties:
        if name not in known:
            return f"has the property {quote_value(name)}, must be one of {', '.join(known)}"
    for generation, row in found.rows.items():
        for name in ("gemm", "gemm_low", "attention", "stream", "network"):
            if getattr(row, name) <= 0:
                value = quote_value(getattr(row, name))
                return f"has rows[{generation!r}].{name} = {value}, must be above 0"
        for name in _RATES:
            if getattr(row, name) > 1:
                value = quote_value(getattr(row, name))
                return f"has rows[{generation!r}].{name} = {value}, must be at most 1"
    return ""


def _positive(target: object, args: tuple[Any, ...], found: object) -> str:
    """Check an integer, or each integer of a tuple."""
    values = found if isinstance(found, tuple | list) else (found,)
    return "" if all(one >= 1 for one in values) else f"returned {found!r}, must be at least 1"


def _ports(target: object, args: tuple[Any, ...], found: tuple[tuple[int, int], ...]) -> str:
    hosts = len(args[0].placement.hosts)
    for rank, port in found:
        if rank >= hosts or not 0 < port <= LAST_PORT:
            return (
                f"returned (node rank, port) = {(rank, port)}; the plan has {hosts} hosts, and "
                f"ports are from 1 to {LAST_PORT}"
            )
    return "" if found else "returned no API server, must return at least one"


def _features(target: object, args: tuple[Any, ...], found: frozenset[str]) -> str:
    for name in sorted(found):
        if not _FEATURE.fullmatch(name):
            return f"returned the unknown feature {quote_value(name)}"
    return ""


def _versions(target: object, args: tuple[Any, ...], found: tuple[str, ...]) -> str:
    default = getattr(target, "default_version", None)
    if not found or default in (None, *found):
        return ""
    return f"is {quote_value(found)}, which lacks the default_version {quote_value(default)}"


def _prefix(target: object, args: tuple[Any, ...], found: str) -> str:
    return "" if found.startswith("/") else f"is {quote_value(found)}, must start with /"


CHECKS: Mapping[str, Check] = {
    "rank_orders": _rank_orders,
    "layout_variants": _needs_items,
    "recompute_settings": _needs_items,
    "device_meshes": _device_meshes,
    "group_families": _families,
    "find_split": _split,
    "split_with_counts": _split,
    "padded_vocab": _vocabulary,
    "environment": _variables,
    "refused_environment": _variables,
    "emit": _artifacts,
    "emit_serving": _artifacts,
    "emit_router": _router,
    "stack": _stack,
    "default_batch": _positive,
    "context_tokens": _positive,
    "expert_parallel_sizes": _positive,
    "decode_context_sizes": _positive,
    "step_tokens_to_try": _positive,
    "api_ports": _ports,
    "service_features": _features,
    "versions": _versions,
    "health_path": _prefix,
}
"""Check of the value of each member that has conditions beyond its type."""


def mesh_defect(layout: Layout, dense: Mesh, expert: Mesh | None) -> str:
    """Return the first contradiction between a valid layout and its meshes; empty if none.

    Both meshes must number the ranks of ``layout`` in its rank order, and each rank must belong to
    the same pipeline stage in both. ``expert`` is None for a model without experts.
    """
    sizes = {name: getattr(layout, name) for name in ("tp", "cp", "dp", "pp")}
    for name, size in sizes.items():
        if dense.group_size(name) != size:
            return f"the mesh has {dense.group_size(name)} ranks along {name}, the layout {size}"
    meshes = {"dense": dense} if expert is None else {"dense": dense, "expert": expert}
    for kind, mesh in meshes.items():
        world = prod(axis.size for axis in mesh.axes)
        if world != layout.world:
            return f"the {kind} mesh has {world} ranks, the layout {layout.world}"
        if defect := _order_defect(layout.order, mesh):
            return f"the {kind} mesh varies {defect}, but the rank order is {layout.order}"
    if expert is not None and expert.group_size("ep") != layout.ep:
        return f"the expert mesh has {expert.group_size('ep')} ranks along ep, not {layout.ep}"
    return "" if expert is None else stage_defect(layout, dense, expert)


def stage_defect(layout: Layout, dense: Mesh, expert: Mesh) -> str:
    """Return a rank whose pipeline stages differ between the meshes; empty if there is none."""
    strides = dense.axis_by_name("pp").stride, expert.axis_by_name("pp").stride
    if layout.pp == 1 or strides[0] == strides[1]:
        return ""
    rank = min(strides)
    first, second = (mesh.coordinate_of_rank(rank, "pp") for mesh in (dense, expert))
    return (
        f"rank {rank} is in pipeline stage {first} of the dense layers and in stage {second} of "
        "the experts"
    )


def stage_rule(device_meshes: Callable[[Layout], tuple[Mesh, Mesh]]) -> Rule:
    """Return the rule that both meshes of a layout put each rank into the same pipeline stage.

    Only some rank orders need it. The frameworks of PARC have rules of their own.
    """

    def broken(problem: Problem, layout: Layout) -> bool:
        return layout.pp > 1 and bool(stage_defect(layout, *device_meshes(layout)))

    def explain(problem: Problem, layout: Layout) -> Finding:
        return Finding(
            f"rank order {layout.order} requires as many expert replicas as dense replicas",
            label=stage_defect(layout, *device_meshes(layout)),
            help="make tp x cp equal to etp x ep, or use pp 1",
        )

    return Rule("D14", ("layout.ep", "layout.etp", "layout.pp"), broken, explain, MESH_FIELDS)


def _order_defect(order: str, mesh: Mesh) -> str:
    """Return two axes of ``mesh`` that vary in another order than ``order``; empty if none."""
    whole = {part: name for name, parts in SUB_AXES.items() for part in parts}
    places = order.split("-")
    # Ranks that share weights (gtp) are next to each other, wherever the other ones of dp are.
    split = (axis for axis in mesh.axes if axis.size > 1 and axis.name != "gtp")
    axes = [whole.get(axis.name, axis.name) for axis in split]
    for faster, slower in pairwise(axes):
        known = faster in places and slower in places
        if not known or places.index(faster) > places.index(slower):
            return f"{faster} faster than {slower}"
    return ""
