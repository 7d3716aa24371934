"""rankmap.md: what a reviewer must see, two screens even for 16,384 ranks."""

from __future__ import annotations

from typing import Any

from parc.backends.rankmap.cells import cell, gigabytes, milliseconds
from parc.backends.rankmap.racks import rack_rows
from parc.backends.rankmap.spans import Span, spans
from parc.backends.rankmap.stages import stage_rows
from parc.backends.shared.render import render
from parc.compiler.ir import Crossing, Mesh, Plan, Proof

SAMPLE_RANKS = 16


def page(plan: Plan) -> str:
    """The Markdown text: at most 100 lines of at most 120 columns."""
    problem, placement, layout = plan.problem, plan.placement, plan.layout
    routed = problem.model.experts is not None
    values: dict[str, Any] = {
        "name": cell(problem.name, 80),
        "world": layout.world,
        "nodes": len(placement.hosts),
        "ranks_per_node": placement.ranks_per_node,
        "target": f"{problem.framework} {problem.version(problem.framework)}",
        "dense": _degrees(plan, ("tp", "cp", "pp", "vpp", "dp")),
        "expert": _degrees(plan, ("etp", "ep", "pp", "edp")),
        "routed": routed,
        "order": placement.order,
        "gpu": gpu(plan),
        "dense_formula": formula(placement.dense, {}),
        "expert_formula": formula(
            placement.expert, {"tp": "etp", "dp": "edp", "dp_shard": "edp_shard"}
        ),
        "master": cell(placement.hosts[0].name, 80),
        "named": problem.cluster.named,
        "stages": stage_rows(plan),
        "racks": rack_rows(placement),
        "spans": [span_cells(span) for span in spans(placement, routed)],
        "alternatives": [_alternative(one) for one in placement.alternatives],
        "proof": plan.placement.proof.summary if plan.placement.alternatives else "",
        "bounds": bounds(plan.placement.proof),
        "columns": tuple(placement.columns),
        "sample": _sample(plan),
    }
    return render("rankmap", "rankmap.md.j2", values)


def formula(mesh: Mesh, names: dict[str, str]) -> str:
    """``tp + 8 (dp + 4 pp)``: the rank from its coordinates; axes of size 1 are left out."""
    axes = [axis for axis in mesh.axes if axis.size > 1] or [mesh.axes[0]]
    text = ""
    for axis in reversed(axes):
        name = names.get(axis.name, axis.name)
        factor = f"({text})" if " + " in text else text
        text = f"{name} + {axis.size} {factor}" if text else name
    return text


def _degrees(plan: Plan, names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {getattr(plan.layout, name)}" for name in names)


def span_cells(span: Span) -> tuple[str, ...]:
    """One row of the table of groups."""
    counts = (span.host, span.domain, span.rack, span.across)
    shown = tuple(str(count) if count else "-" for count in counts)
    return (span.name, f"{span.count} x {span.size}", *shown, str(span.most_racks))


def _alternative(one: Crossing) -> tuple[str, str, str, str]:
    choice = "**chosen**" if one.chosen else ""
    return (one.name, gigabytes(one.uplink_bytes), milliseconds(one.exposed_seconds), choice)


def gpu(plan: Plan) -> str:
    """The device of a rank, in words."""
    each, devices = plan.placement.ranks_per_node, plan.placement.devices
    if not devices:
        return f"GPU = `rank % {each}`"
    return f"GPU = entry `rank % {each}` of {', '.join(map(str, devices))}"


def bounds(proof: Proof) -> str:
    """What the order costs, and what no order can beat."""
    exposed, least = milliseconds(proof.exposed_seconds), milliseconds(proof.bound_seconds)
    sent, fewest = gigabytes(proof.uplink_bytes), gigabytes(proof.bound_uplink_bytes)
    return (
        f"{exposed} exposed over shared links ({least} at least), {sent} over the busiest uplink "
        f"({fewest} at least)"
    )


def _sample(plan: Plan) -> list[tuple[str, ...]]:
    """The ranks of the first hosts, row by row."""
    placement = plan.placement
    columns = placement.columns
    each = placement.ranks_per_node
    hosts = min(2, len(placement.hosts))
    return [
        (
            str(rank),
            cell(placement.host_of(rank).name, 40),
            str((placement.devices or range(each))[rank % each]),
            *(str(column[rank]) for column in columns.values()),
        )
        for rank in range(min(each * hosts, SAMPLE_RANKS))
    ]
