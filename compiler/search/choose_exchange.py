"""How context ranks exchange keys, where the spec leaves it open: what is fastest, ring first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from parc.compiler.cost.collectives.context_exchange import exchange_seconds
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.step_time import shared_layer_time
from parc.compiler.ir import ContextComm, Layout, Problem
from parc.compiler.ir.rule import Rule

Levels = tuple[ContextComm, int]
"""(exchange, neighbours of a hierarchy; 1 where it is none)."""
Exchange = Callable[[Layout], Levels]

RING: Levels = ("p2p", 1)
SIMPLEST: tuple[ContextComm, ...] = ("p2p", "a2a", "a2a+p2p", "all_gather")
"""Tried in this order. The gather keeps the keys of all, so that it is only for what the others
cannot do."""
WORTH = 0.03
"""Share of a layer that a less simple exchange must save: below it predictions are tied."""


def given_exchange(problem: Problem, comm: ContextComm) -> Exchange:
    """Always ``comm``."""
    return lambda layout: levels(problem, layout, comm)


def levels(problem: Problem, layout: Layout, comm: ContextComm) -> Levels:
    """``comm`` with its neighbours: those pinned, else the most that NVLink joins beside tp.

    Heads of a tensor rank must divide over them; 1 where nothing does, which a rule refuses.
    """
    if comm != "a2a+p2p" or layout.cp == 1:
        return comm, 1
    if problem.pins.cp_a2a is not None:
        return comm, problem.pins.cp_a2a
    attention, node, tp = problem.model.attention, problem.cluster.node, layout.tp
    proper = [inner for inner in range(2, layout.cp) if layout.cp % inner == 0]
    able = [inner for inner in proper if attention.swaps(inner, tp)]
    near = [inner for inner in able if inner * tp <= node.near_gpus]
    return comm, max(near, default=min(able, default=1))


def fastest_exchange(pricing: Pricing, rules: Iterable[Rule]) -> Exchange:
    """The fastest that no rule refuses, by tp and cp alone, for micro-batches of one sequence.

    Of two that differ by less than WORTH of a layer, or where no layer has attention, the simpler
    one.
    """
    judges = tuple(rule for rule in rules if "cp_comm" in rule.reads)
    chosen: dict[tuple[int, int], Levels] = {}

    def choose(layout: Layout) -> Levels:
        if layout.cp == 1:
            return RING
        key = (layout.tp, layout.cp)
        if key not in chosen:
            chosen[key] = _fastest(pricing, judges, replace(layout, micro_batch=1))
        return chosen[key]

    return choose


def _fastest(pricing: Pricing, judges: tuple[Rule, ...], layout: Layout) -> Levels:
    problem = pricing.problem
    offered = [levels(problem, layout, comm) for comm in SIMPLEST]
    legal = [
        one
        for one in offered
        if not any(judge.broken(problem, _with(layout, one)) for judge in judges)
    ]
    if not legal:
        return RING
    best, *others = legal
    kind = next((kind for kind in problem.model.kinds if kind.mixer == "attention"), None)
    if kind is None:  # no keys and values to exchange
        return best
    ring = shared_layer_time(pricing, _with(layout, RING), kind)
    groups = {one: pricing.groups(_with(layout, one)) for one in legal}
    seconds = {
        one: exchange_seconds(pricing, _with(layout, one), groups[one], ring.core) for one in legal
    }
    for one in others:
        saved = seconds[best] - seconds[one]
        if one[0] != "all_gather" and saved > WORTH * (ring.total - ring.cp + seconds[best]):
            best = one
    return best


def _with(layout: Layout, chosen: Levels) -> Layout:
    return replace(layout, cp_comm=chosen[0], cp_a2a=chosen[1])
