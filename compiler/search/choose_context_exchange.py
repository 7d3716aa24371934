"""Choice of how context-parallel ranks exchange keys and values, if the spec does not set it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.context_exchange import attention_exchange_seconds
from parc.compiler.cost.step.stage_time import cached_layer_time
from parc.compiler.ir import ContextComm, Layout, Problem
from parc.compiler.ir.rule import Rule

Exchange = tuple[ContextComm, int]
"""(cp_comm, cp_a2a): the kind of exchange, and the size of its all-to-all groups. Size 1 means that
the exchange has no such groups."""
ChooseExchange = Callable[[Layout], Exchange]
"""Function that returns the exchange of a layout."""

RING: Exchange = ("p2p", 1)
SIMPLEST: tuple[ContextComm, ...] = ("p2p", "a2a", "a2a+p2p", "all_gather")
"""Kinds of exchange in the order in which they are tried. The all-gather stores the keys and values
of all ranks, so it is only used if no other kind is valid."""
MIN_SAVING = 0.03
"""Fraction of the layer time that a more complex exchange must save to be chosen."""


def fixed_exchange(problem: Problem, comm: ContextComm) -> ChooseExchange:
    """Return a function that chooses the context-parallel exchange ``comm`` for all layouts."""
    return lambda layout: with_all_to_all_size(problem, layout, comm)


def with_all_to_all_size(problem: Problem, layout: Layout, comm: ContextComm) -> Exchange:
    """Return the context-parallel exchange ``comm``, and the size of its all-to-all groups.

    Only the exchange a2a+p2p has groups larger than 1. Their size is ``cp_a2a`` of the spec. If the
    spec does not set it, the size is the largest valid one whose groups stay within an NVLink
    domain, or else the smallest valid one. A size is valid if it divides the attention heads per
    tensor-parallel rank. If no size is valid, the result is 1, which a rule rejects later.
    """
    if comm != "a2a+p2p" or layout.cp == 1:
        return comm, 1
    if problem.pins.cp_a2a is not None:
        return comm, problem.pins.cp_a2a
    attention, node, tp = problem.model.attention, problem.cluster.node, layout.tp
    proper = [inner for inner in range(2, layout.cp) if layout.cp % inner == 0]
    able = [inner for inner in proper if attention.can_exchange_heads(inner, tp)]
    # The ranks of an all-to-all group are tp GPUs apart, so a group spans inner * tp GPUs.
    near = [inner for inner in able if inner * tp <= node.nvlink_or_host_gpus]
    return comm, max(near, default=min(able, default=1))


def fastest_exchange(cost_model: CostModel, rules: Iterable[Rule]) -> ChooseExchange:
    """Return a function that chooses the fastest valid context-parallel exchange of a layout.

    The choice is made once per pair (tp, cp), at micro-batch 1. If the faster of two exchanges
    saves less than ``MIN_SAVING`` of the layer time, the simpler one is chosen. If the model has no
    attention layers, the simplest exchange is chosen.
    """
    # Only these rules differ between exchanges. The search checks all rules later.
    relevant = tuple(rule for rule in rules if "cp_comm" in rule.reads)
    chosen: dict[tuple[int, int], Exchange] = {}

    def choose_exchange(layout: Layout) -> Exchange:
        if layout.cp == 1:
            return RING
        key = (layout.tp, layout.cp)
        if key not in chosen:
            chosen[key] = _fastest_valid_exchange(
                cost_model, relevant, replace(layout, micro_batch=1)
            )
        return chosen[key]

    return choose_exchange


def _fastest_valid_exchange(
    cost_model: CostModel, rules: tuple[Rule, ...], layout: Layout
) -> Exchange:
    problem = cost_model.problem
    offered = [with_all_to_all_size(problem, layout, comm) for comm in SIMPLEST]
    valid = [
        exchange
        for exchange in offered
        if not any(rule.broken(problem, _layout_with_exchange(layout, exchange)) for rule in rules)
    ]
    if not valid:
        return RING  # the rules reject it later, with their explanation
    best, *others = valid
    kind = next((kind for kind in problem.model.kinds if kind.attends), None)
    if kind is None:  # a model without keys and values to exchange
        return best
    ring = cached_layer_time(cost_model, _layout_with_exchange(layout, RING), kind)
    # Exchanges hide behind the attention core, whose time is equal for all of them: ring.core.
    groups = {
        exchange: cost_model.group_spans(_layout_with_exchange(layout, exchange))
        for exchange in valid
    }
    seconds = {
        exchange: attention_exchange_seconds(
            cost_model, _layout_with_exchange(layout, exchange), groups[exchange], ring.core
        ).total
        for exchange in valid
    }
    for exchange in others:
        saved = seconds[best] - seconds[exchange]
        # The all-gather stores all keys and values, so it is never chosen for its speed.
        if exchange[0] != "all_gather" and saved > MIN_SAVING * (
            ring.total - ring.cp + seconds[best]
        ):
            best = exchange
    return best


def _layout_with_exchange(layout: Layout, chosen: Exchange) -> Layout:
    return replace(layout, cp_comm=chosen[0], cp_a2a=chosen[1])
