"""Text of ``rankmap.md`` for a training job: two screens, however many ranks there are."""

from __future__ import annotations

from typing import Any

from parc.backends.rankmap.group_extents import GroupExtent, group_extents
from parc.backends.rankmap.page_tables import rack_rows, stage_rows
from parc.backends.rankmap.table_cells import format_bytes, format_duration, markdown_cell_text
from parc.backends.shared.render import render
from parc.compiler.ir import Mesh, PlacementAlternative, PlacementProof, Plan

SAMPLE_RANKS = 16


def render_training_page(plan: Plan) -> str:
    """Return the Markdown text of ``rankmap.md``: at most 100 lines of at most 120 columns."""
    problem, placement, layout = plan.problem, plan.placement, plan.layout
    routed = problem.model.experts is not None
    values: dict[str, Any] = {
        "name": markdown_cell_text(problem.name, 80),
        "world": layout.world,
        "nodes": len(placement.hosts),
        "ranks_per_node": placement.ranks_per_node,
        "target": f"{problem.framework} {problem.version(problem.framework)}",
        "dense": _format_parallel_sizes(plan, ("tp", "cp", "pp", "vpp", "dp"), "gtp"),
        "expert": _format_parallel_sizes(plan, ("etp", "ep", "pp", "edp"), "egtp"),
        "routed": routed,
        "order": placement.order,
        "gpu": gpu_index_formula(plan),
        "dense_formula": rank_formula(placement.dense, {}),
        "expert_formula": rank_formula(
            placement.expert, {"tp": "etp", "dp": "edp", "dp_shard": "edp_shard", "gtp": "egtp"}
        ),
        "master": markdown_cell_text(placement.hosts[0].name, 80),
        "named": problem.cluster.named,
        "stages": stage_rows(plan),
        "racks": rack_rows(placement),
        "spans": [process_group_cells(span) for span in group_extents(placement, routed)],
        "alternatives": [_host_order_cells(one) for one in placement.alternatives],
        "proof": plan.placement.proof.summary if plan.placement.alternatives else "",
        "bounds": format_host_order_bounds(plan.placement.proof),
        "columns": tuple(placement.rank_map_columns),
        "sample": _sample_rank_rows(plan),
    }
    return render("rankmap", "rankmap.md.j2", values)


def rank_formula(mesh: Mesh, names: dict[str, str]) -> str:
    """Return the formula of a rank from its coordinates, such as ``tp + 8 (dp + 4 pp)``.

    Axes of size 1 are left out. ``names`` maps the name of an axis to the name that the formula
    shows.
    """
    axes = [axis for axis in mesh.axes if axis.size > 1] or [mesh.axes[0]]
    text = ""
    # Horner's scheme from the slowest axis inwards: rank = c0 + n0 (c1 + n1 (c2 + ...)).
    for axis in reversed(axes):
        name = names.get(axis.name, axis.name)
        factor = f"({text})" if " + " in text else text
        text = f"{name} + {axis.size} {factor}" if text else name
    return text


def _format_parallel_sizes(plan: Plan, names: tuple[str, ...], shared: str) -> str:
    """Return the named parallel sizes as text, such as ``tp 8, cp 1``.

    The number of ranks that share weights, ``shared``, is only listed if it is above 1.
    """
    listed = (*names, shared) if getattr(plan.layout, shared) > 1 else names
    return ", ".join(f"{name} {getattr(plan.layout, name)}" for name in listed)


def process_group_cells(span: GroupExtent) -> tuple[str, ...]:
    """Return the cells of the row for ``span`` in the table of process groups."""
    counts = (span.host, span.domain, span.rack, span.across)
    shown = tuple(str(count) if count else "-" for count in counts)
    return (span.name, f"{span.count} x {span.size}", *shown, str(span.most_racks))


def _host_order_cells(alternative: PlacementAlternative) -> tuple[str, str, str, str]:
    """Return (order, uplink traffic, exposed time, mark of the chosen order) as text."""
    choice = "**chosen**" if alternative.chosen else ""
    return (
        alternative.name,
        format_bytes(alternative.uplink_bytes),
        format_duration(alternative.exposed_seconds),
        choice,
    )


def gpu_index_formula(plan: Plan) -> str:
    """Return the formula that computes the GPU index of a rank, such as ``GPU = rank % 8``."""
    each, devices = plan.placement.ranks_per_node, plan.placement.devices
    if not devices:
        return f"GPU = `rank % {each}`"
    return f"GPU = item `rank % {each}` of {', '.join(map(str, devices))}"


def format_host_order_bounds(proof: PlacementProof) -> tuple[str, str]:
    """Return (exposed time, uplink traffic) of the host order, each with its lower bound."""
    exposed, least = format_duration(proof.exposed_seconds), format_duration(proof.bound_seconds)
    return (
        f"exposed on links between hosts: {exposed} per step (lower bound {least})",
        f"busiest uplink: {format_bytes(proof.uplink_bytes)} per step",
    )


def _sample_rank_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return (rank, host, GPU, coordinates) of at most SAMPLE_RANKS ranks on two hosts."""
    placement = plan.placement
    columns = placement.rank_map_columns
    each = placement.ranks_per_node
    hosts = min(2, len(placement.hosts))
    return [
        (
            str(rank),
            markdown_cell_text(placement.host_of(rank).name, 40),
            str((placement.devices or range(each))[rank % each]),
            *(str(column[rank]) for column in columns.values()),
        )
        for rank in range(min(each * hosts, SAMPLE_RANKS))
    ]
