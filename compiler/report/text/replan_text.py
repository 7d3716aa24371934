"""What a replan moved, as lines and as JSON types."""

from __future__ import annotations

from typing import Any

from parc.compiler.ir.serialize import as_json
from parc.compiler.placement.find_vacancies import Move
from parc.compiler.placement.replan_hosts import Replanned
from parc.compiler.placement.replan_service import ReplannedService
from parc.compiler.report.numbers import many, percent, quantity, rounded_tree, seconds
from parc.compiler.topology.hostlist import compress
from parc.compiler.topology.tree import meeting_level

AnyReplanned = Replanned | ReplannedService
SHOWN = 16
"""Moves that are listed; the rest is counted."""


def replan_text(found: AnyReplanned, origin: str) -> str:
    """Which ranks move where, and what that costs."""
    world = found.plan.placement.dense.world
    ranks = sum(move.last_rank - move.first_rank + 1 for move in found.moves)
    share = percent(ranks / world)
    drained = compress(found.drained) or "nothing"
    rows = [
        ("replan", f"{found.plan.problem.name}: without {drained}"),
        ("from", origin),
        ("moves", f"{ranks:,} of {world:,} ranks ({share}) on {many(len(found.moves), 'host')}"),
        *(("", _move(move, found)) for move in found.moves[:SHOWN]),
    ]
    if len(found.moves) > SHOWN:
        rows.append(("", f"and {len(found.moves) - SHOWN} more hosts"))
    rows += _links(found) if isinstance(found, Replanned) else _engines(found)
    return "".join(f"{name:<9} {text}\n" for name, text in rows)


def _links(found: Replanned) -> list[tuple[str, str]]:
    before, after = found.before, found.after
    return [
        (
            "links",
            f"busiest uplink {quantity(before.busiest_bytes, 'B')} -> "
            f"{quantity(after.busiest_bytes, 'B')} a step, all uplinks "
            f"{quantity(before.total_bytes, 'B')} -> {quantity(after.total_bytes, 'B')}",
        ),
        (
            "exposed",
            f"{seconds(before.exposed_seconds)} -> {seconds(after.exposed_seconds)} over shared "
            f"links, {found.plan.placement.proof.summary}",
        ),
    ]


def _engines(found: ReplannedService) -> list[tuple[str, str]]:
    """Replicas that must start anew, and how far engines reach."""
    replicas, engines = found.plan.layout.replicas, found.engines
    numbers = f": {_numbers(engines)}" if engines else ""
    changed = f"{len(engines)} of {many(replicas, 'replica')} on other hosts{numbers}"
    before, after = found.before, found.after
    words = f"switches that they cross {before.switches} -> {after.switches}"
    if before.domains or after.domains:
        words += f", NVLink domains {before.domains} -> {after.domains}"
    return [("engines", changed), ("spread", words)]


def _numbers(engines: tuple[int, ...]) -> str:
    more = f" and {len(engines) - SHOWN} more" if len(engines) > SHOWN else ""
    return ", ".join(map(str, engines[:SHOWN])) + more


def replan_document(found: AnyReplanned, origin: str) -> dict[str, Any]:
    """The same as JSON types."""
    moves = [
        {
            "node_rank": move.node_rank,
            "ranks": [move.first_rank, move.last_rank],
            "old": move.old.name,
            "new": move.new.name,
            "meet": _meeting(move, found),
        }
        for move in found.moves
    ]
    document = {
        "name": found.plan.problem.name,
        "from": origin,
        "drained": list(found.drained),
        "moves": moves,
        "before": as_json(found.before),
        "after": as_json(found.after),
    }
    if isinstance(found, Replanned):
        document["placement"] = as_json(found.plan.placement.proof)
    else:
        document["replicas"] = list(found.engines)
    return dict(rounded_tree(document))


def _move(move: Move, found: AnyReplanned) -> str:
    where = f"ranks {move.first_rank}-{move.last_rank} (node rank {move.node_rank})"
    return f"{where}: {move.old.name} -> {move.new.name}, {_meeting(move, found)}"


def _meeting(move: Move, found: AnyReplanned) -> str:
    """``same leaf``, ``same pod``, or that they meet above all levels."""
    levels = found.plan.problem.cluster.levels
    level = meeting_level(move.old, move.new)
    if level == len(levels):
        return f"another {levels[-1].name}"
    return f"same {levels[level].name}"
