"""Rows of the stages table: ranks, hosts and layers of every pipeline rank."""

from __future__ import annotations

from itertools import groupby

from parc.backends.rankmap.cells import joined, listed, runs, shortened
from parc.compiler.ir import Layout, Placement, Plan
from parc.compiler.topology.hostlist import compress

MOST_STAGES = 18


def stage_rows(plan: Plan) -> list[tuple[str, ...]]:
    """(stage, ranks, node ranks, hosts, layers); equal neighbours are folded beyond 18 stages."""
    layout = plan.layout
    stages: list[tuple[int, ...]] = [(stage,) for stage in range(layout.pp)]
    if layout.pp > MOST_STAGES:
        alike = groupby(range(layout.pp), key=lambda stage: _contents(layout, stage))
        stages = [tuple(group) for _, group in alike]
    left = len(stages) - MOST_STAGES + 1
    kept = shortened(stages, MOST_STAGES, ())
    gap = ("...", f"{left} more rows", "", "", "")
    return [_row(plan, group) if group else gap for group in kept]


def _contents(layout: Layout, stage: int) -> tuple[int, int, bool, bool]:
    """What makes a stage differ from its neighbour: layers, MTP layers, embedding, loss."""
    chunks = layout.split.chunks[stage]
    return (
        sum(chunk.layers for chunk in chunks),
        sum(chunk.mtp_layers for chunk in chunks),
        any(chunk.embedding for chunk in chunks),
        any(chunk.loss for chunk in chunks),
    )


def _row(plan: Plan, stages: tuple[int, ...]) -> tuple[str, ...]:
    placement = plan.placement
    first, last = _ranks(placement, stages[0]), _ranks(placement, stages[-1])
    single = len(stages) == 1
    ranks = joined(first) if single else f"{first[0][0]}-{last[-1][1]}"
    each = placement.ranks_per_node
    nodes = {
        node
        for stage in stages
        for low, high in _ranks(placement, stage)
        for node in range(low // each, high // each + 1)
    }
    return (
        runs(stages),
        listed(ranks, 24),
        listed(runs(nodes), 20),
        listed(compress(placement.hosts[node].name for node in nodes), 30),
        _layers(plan.layout, stages),
    )


def _ranks(placement: Placement, stage: int) -> list[tuple[int, int]]:
    """(first, last) rank of every run of ranks on ``stage``."""
    axis = placement.dense.axis("pp")
    period = axis.stride * axis.size
    starts = range(stage * axis.stride, placement.dense.world, period)
    return [(start, start + axis.stride - 1) for start in starts]


def _layers(layout: Layout, stages: tuple[int, ...]) -> str:
    """``0-19``; ``3 of 0-62 each`` for folded stages; extras as words."""
    chunks = layout.split.chunks[stages[0]]
    layers, mtp, embedding, loss = _contents(layout, stages[0])
    if len(stages) > 1:
        text = f"{layers} each"
    else:
        owned = [n for c in chunks for n in range(c.first_layer, c.first_layer + c.layers)]
        text = listed(runs(owned), 24) if owned else "none"
    extras = [name for name, here in (("embedding", embedding), ("loss", loss)) if here]
    if mtp:
        extras.append(f"{mtp} MTP")
    return " + ".join([text, *extras])
