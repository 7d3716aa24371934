"""Result of ``parc replan`` as text and as JSON types."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir.serialize import as_json
from parc.compiler.placement.find_vacancies import NodeRankMove
from parc.compiler.placement.replan_hosts import ReplannedService, ReplannedTraining
from parc.compiler.report.formatting import (
    format_percent,
    format_quantity,
    format_seconds,
    round_floats_in_tree,
)
from parc.compiler.topology.hostlist import compress_hosts
from parc.compiler.topology.tree import common_switch_level

AnyReplanned = ReplannedTraining | ReplannedService
SHOWN = 16
"""Largest number of moves, and of replicas, that are listed; further ones are only counted."""


def replan_text(replanned: AnyReplanned, origin: str) -> str:
    """Return the ranks that a replan moves, and the network traffic before and after the moves."""
    world = replanned.plan.placement.dense.world
    ranks = sum(move.last_rank - move.first_rank + 1 for move in replanned.moves)
    share = format_percent(ranks / world)
    drained = compress_hosts(replanned.drained) or "no host"
    rows = [
        ("replan", f"{replanned.plan.problem.name}: drain {drained}"),
        ("from", origin),
        (
            "moves",
            f"{ranks:,} of {world:,} ranks ({share}) on "
            + format_count(len(replanned.moves), "host"),
        ),
        *(("", _format_move(move, replanned)) for move in replanned.moves[:SHOWN]),
    ]
    if len(replanned.moves) > SHOWN:
        rows.append(("", f"and {len(replanned.moves) - SHOWN} more hosts"))
    rows += (
        _link_load_lines(replanned)
        if isinstance(replanned, ReplannedTraining)
        else _engine_lines(replanned)
    )
    return "".join(f"{name:<9} {text}\n" for name, text in rows)


def _link_load_lines(replanned: ReplannedTraining) -> list[tuple[str, str]]:
    before, after = replanned.before, replanned.after
    return [
        (
            "links",
            f"busiest uplink {format_quantity(before.busiest_bytes, 'B')} -> "
            f"{format_quantity(after.busiest_bytes, 'B')} per step, all uplinks "
            f"{format_quantity(before.total_bytes, 'B')} -> "
            f"{format_quantity(after.total_bytes, 'B')}",
        ),
        (
            "exposed",
            f"{format_seconds(before.exposed_seconds)} -> "
            f"{format_seconds(after.exposed_seconds)} per step on "
            f"links between hosts; {replanned.plan.placement.proof.summary}",
        ),
    ]


def _engine_lines(replanned: ReplannedService) -> list[tuple[str, str]]:
    """Return two rows (name, text): restarted replicas, and switches that the engines span."""
    replicas, engines = replanned.plan.layout.replicas, replanned.engines
    numbers = f": {_format_replicas(engines)}" if engines else ""
    changed = (
        f"{len(engines)} of {format_count(replicas, 'replica')} restart on other hosts{numbers}"
    )
    before, after = replanned.before, replanned.after
    words = f"additional switches that engines span: {before.switches} -> {after.switches}"
    if before.domains or after.domains:
        words += f", NVLink domains: {before.domains} -> {after.domains}"
    return [("engines", changed), ("spread", words)]


def _format_replicas(engines: tuple[int, ...]) -> str:
    more = f" and {len(engines) - SHOWN} more" if len(engines) > SHOWN else ""
    return ", ".join(map(str, engines[:SHOWN])) + more


def replan_document(replanned: AnyReplanned, origin: str) -> dict[str, Any]:
    """Return the result of a replan as JSON types.

    ``origin`` names the plan from which the replan started.
    """
    moves = [
        {
            "node_rank": move.node_rank,
            "ranks": [move.first_rank, move.last_rank],
            "old": move.old.name,
            "new": move.new.name,
            "meet": _lowest_common_level(move, replanned),
        }
        for move in replanned.moves
    ]
    document = {
        "name": replanned.plan.problem.name,
        "from": origin,
        "drained": list(replanned.drained),
        "moves": moves,
        "before": as_json(replanned.before),
        "after": as_json(replanned.after),
    }
    if isinstance(replanned, ReplannedTraining):
        document["placement"] = as_json(replanned.plan.placement.proof)
    else:
        document["replicas"] = list(replanned.engines)
    return dict(round_floats_in_tree(document))


def _format_move(move: NodeRankMove, replanned: AnyReplanned) -> str:
    where = f"ranks {move.first_rank}-{move.last_rank} (node rank {move.node_rank})"
    return f"{where}: {move.old.name} -> {move.new.name}, {_lowest_common_level(move, replanned)}"


def _lowest_common_level(move: NodeRankMove, replanned: AnyReplanned) -> str:
    """Return the distance between the old and the new host of a move, such as ``same leaf``.

    The text names the lowest network level at which both hosts are below one switch. If they share
    no switch, the text names the highest level: ``another pod``.
    """
    levels = replanned.plan.problem.cluster.switch_tiers
    level = common_switch_level(move.old, move.new)
    # The hosts share no switch, so they are in different subtrees of the highest level.
    if level == len(levels):
        return f"another {levels[-1].name}"
    return f"same {levels[level].name}"
