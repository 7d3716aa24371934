"""The exchange of keys and values among context ranks, if the spec leaves it open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.context_exchange import exchange_seconds
from parc.compiler.cost.step.step_time import shared_layer_time
from parc.compiler.ir import ContextComm, Layout, Problem
from parc.compiler.ir.rule import Rule

Exchange = tuple[ContextComm, int]
"""(cp_comm, cp_a2a): the kind of exchange, and the ranks of its all-to-all groups (1: none)."""
ChooseExchange = Callable[[Layout], Exchange]

RING: Exchange = ("p2p", 1)
SIMPLEST: tuple[ContextComm, ...] = ("p2p", "a2a", "a2a+p2p", "all_gather")
"""Kinds of exchange in the order in which they are tried. The all-gather stores the keys and values
of all ranks, so it is only used if no other kind is valid."""
WORTH = 0.03
"""Share of a layer's time that a less simple exchange must save; smaller differences tie."""


def pinned_exchange(problem: Problem, comm: ContextComm) -> ChooseExchange:
    """Return a choice that is always ``comm``."""
    return lambda layout: with_all_to_all(problem, layout, comm)


def with_all_to_all(problem: Problem, layout: Layout, comm: ContextComm) -> Exchange:
    """Return ``comm`` with the size of its all-to-all groups: the pin, or the largest in NVLink.

    The heads per tensor rank must be divisible by that size. The result is 1 if no size is valid;
    a rule then rejects the layout.
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


def fastest_exchange(pricing: Pricing, rules: Iterable[Rule]) -> ChooseExchange:
    """Return a choice of the fastest valid exchange per (tp, cp), at micro-batch 1.

    Of two that differ by less than ``WORTH`` of a layer, and in models without attention, the
    simpler one is chosen.
    """
    relevant = tuple(rule for rule in rules if "cp_comm" in rule.reads)
    chosen: dict[tuple[int, int], Exchange] = {}

    def choose(layout: Layout) -> Exchange:
        if layout.cp == 1:
            return RING
        key = (layout.tp, layout.cp)
        if key not in chosen:
            chosen[key] = _fastest(pricing, relevant, replace(layout, micro_batch=1))
        return chosen[key]

    return choose


def _fastest(pricing: Pricing, rules: tuple[Rule, ...], layout: Layout) -> Exchange:
    problem = pricing.problem
    offered = [with_all_to_all(problem, layout, comm) for comm in SIMPLEST]
    valid = [
        one
        for one in offered
        if not any(rule.broken(problem, _with(layout, one)) for rule in rules)
    ]
    if not valid:
        return RING
    best, *others = valid
    kind = next((kind for kind in problem.model.kinds if kind.mixer == "attention"), None)
    if kind is None:  # a model without keys and values to exchange
        return best
    ring = shared_layer_time(pricing, _with(layout, RING), kind)
    groups = {one: pricing.groups(_with(layout, one)) for one in valid}
    seconds = {
        one: exchange_seconds(pricing, _with(layout, one), groups[one], ring.core) for one in valid
    }
    for one in others:
        saved = seconds[best] - seconds[one]
        if one[0] != "all_gather" and saved > WORTH * (ring.total - ring.cp + seconds[best]):
            best = one
    return best


def _with(layout: Layout, chosen: Exchange) -> Layout:
    return replace(layout, cp_comm=chosen[0], cp_a2a=chosen[1])
