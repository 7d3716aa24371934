"""Resolve ``cluster.levels`` and the switches above racks to tiers of the network."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Fabric, Level
from parc.compiler.resolve.resolve_hosts import WrittenRack
from parc.compiler.spec.cluster_spec import ClusterSpec, LevelSpec

AT = "cluster.levels"
NAMES = {1: ("spine",), 2: ("pod", "spine"), 3: ("pod", "spine", "core")}
"""Number of tiers above the leaf -> their names; if there are more: tier2, tier3, ..."""


def resolve_levels(
    spec: ClusterSpec, racks: list[WrittenRack], fabric: Fabric, sink: Sink
) -> tuple[Level, ...]:
    """Return the tiers above the leaf, nearest first: one per switch that racks list in ``above``.

    H10 if racks list different numbers of switches, or ``levels`` has another number of tiers.
    """
    depth = len(racks[0].above) if racks else 0
    for rack in racks:
        if len(rack.above) != depth:
            finding = Finding(
                f"switches above rack {rack.name}: {len(rack.above)}, {racks[0].name}: {depth}",
                label=f"{len(rack.above)} != {depth}",
                help="list as many switches above every rack; repeat one that spans two tiers",
                causes=(Cause(f"{racks[0].path}.above", "the first rack"),),
            )
            sink.report("H10", finding, at=f"{rack.path}.above")
            return ()
    written = spec.levels or ()
    if written and len(written) != depth + 1:
        finding = Finding(
            f"{len(written)} levels, but racks list {depth} switches above the leaf",
            label=f"{len(written)} != 1 + {depth}",
            help="the leaf is the first level; racks[].above lists one switch per level above it",
        )
        sink.report("H10", finding, at=AT)
        return ()
    names = NAMES.get(depth) or tuple(f"tier{tier}" for tier in range(2, depth + 2))
    levels = written[1:] or tuple(LevelSpec(name=name) for name in names[:depth])
    return tuple(
        Level(level.name, level.oversubscription or 1.0, level.latency or fabric.latency_seconds)
        for level in levels
    )


def with_leaf(spec: ClusterSpec, fabric: Fabric) -> Fabric:
    """Return the fabric with oversubscription and latency of ``levels[0]``, the leaf level."""
    leaf = spec.levels[0] if spec.levels else None
    if leaf is None:
        return fabric
    return replace(
        fabric,
        oversubscription=leaf.oversubscription or fabric.oversubscription,
        latency_seconds=leaf.latency or fabric.latency_seconds,
    )
