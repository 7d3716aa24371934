"""The chosen layout in another rank order of the framework, if the step is then faster.

The layout search uses the framework's default order. If a host has ranks of several replicas, the
other order puts ranks of several pipeline stages on the host instead. No permutation of hosts can
do that.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import (
    Candidate,
    Estimate,
    Layout,
    Placement,
    PlacementAlternative,
    Search,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.placement.place_ranks import place_ranks
from parc.compiler.placement.score_placement import add_placement_seconds

LEAST_GAIN = 0.01
"""Fraction of the step time that another rank order must save to replace the default order."""


@frozen
class PlacedLayout:
    """Layout with its placement, and with its estimate on the hosts of this placement."""

    layout: Layout
    estimate: Estimate
    placement: Placement

    @property
    def candidate(self) -> Candidate:
        """Candidate of the layout, with the figures of the estimate."""
        time, peak = self.estimate.time, self.estimate.peak.total_bytes
        added = time.placement_seconds
        return Candidate(self.layout, time.total_seconds, peak, self.estimate.mfu, added)


def try_other_rank_order(
    cost_model: CostModel, layout: Layout, estimate: Estimate, placement: Placement
) -> PlacedLayout:
    """Return the placed layout, or the same layout in a rank order that is more than 1 % faster.

    ``estimate`` is that of the layout before it was placed. The estimate of the result contains the
    seconds that the placement adds.

    No other rank order is tried if the spec sets ``layout.order``, or if each host belongs to one
    stage and one replica: another order of hosts then has the same effect as another rank order.
    The placement in the rank order that was not chosen is added to the alternatives.
    """
    kept = PlacedLayout(
        layout, add_placement_seconds(cost_model, layout, estimate, placement), placement
    )
    others = [
        _place_in_one_order(cost_model, other)
        for other in _valid_other_orders(cost_model, layout, placement)
    ]
    if not others:
        return kept
    best = min(others, key=lambda one: one.estimate.time.total_seconds)
    # A small gain is less than the error of the estimate and not worth a second rank order.
    least, seconds = best.estimate.time.total_seconds, kept.estimate.time.total_seconds
    if least < seconds * (1 - LEAST_GAIN):
        return _with_alternative(best, kept)
    return _with_alternative(kept, best)


def place_layout(cost_model: CostModel, layout: Layout) -> PlacedLayout:
    """Return ``layout`` as a plan that chooses it would place it, with the full budget."""
    estimate = estimate_layout(cost_model, layout)
    placement = place_ranks(cost_model.problem, cost_model.framework, layout, estimate)
    return try_other_rank_order(cost_model, layout, estimate, placement)


def search_with_chosen_first(search: Search, placed: PlacedLayout) -> Search:
    """Return the search result ``search`` with the placed layout as its first candidate.

    The search places layouts with a smaller budget, so the figures of the first candidate change
    even if its layout is the placed one. If the search placed no layout, because the cluster is too
    large, the others get the seconds that the placement adds to the first one: candidates are
    compared with each other.
    """
    # The best layout on all hosts has its own placement if the chosen layout leaves hosts idle.
    world = placed.layout.world
    if any(one.placed_seconds for one in search.ranked if one.layout.world == world):
        return replace(search, ranked=(placed.candidate, *search.ranked[1:]))
    added = placed.candidate.placed_seconds
    others = tuple(
        _with_seconds(one, added) if one.layout.world == world else one for one in search.ranked[1:]
    )
    return replace(search, ranked=(placed.candidate, *others))


def _with_seconds(candidate: Candidate, placed_seconds: float) -> Candidate:
    """Return ``candidate`` with a step that its placement makes longer by ``placed_seconds``."""
    seconds = candidate.step_seconds + placed_seconds
    mfu = candidate.mfu * candidate.step_seconds / seconds
    return replace(candidate, step_seconds=seconds, placed_seconds=placed_seconds, mfu=mfu)


def _valid_other_orders(
    cost_model: CostModel, layout: Layout, placement: Placement
) -> list[Layout]:
    """Return copies of ``layout``, one for each other rank order to try.

    Rank orders that break a rule or cannot change the step time are left out.
    """
    problem, framework = cost_model.problem, cost_model.framework
    # True if each host belongs to one stage and one replica.
    aligned = layout.tp * layout.cp % placement.ranks_per_node == 0
    if problem.pins.order or aligned or layout.pp == 1 or layout.dp == 1:
        return []
    others = (order for order in framework.rank_orders(problem) if order != layout.order)
    layouts = [replace(layout, order=order) for order in others]
    # The layout is valid in its own order, so only rules that read the order can be violated.
    rules = [rule for rule in all_rules(problem, framework) if "order" in rule.reads]
    return [one for one in layouts if not any(rule.broken(problem, one) for rule in rules)]


def _place_in_one_order(cost_model: CostModel, layout: Layout) -> PlacedLayout:
    """Return ``layout`` with its placement, and with its estimate on the hosts of the placement."""
    estimate = estimate_layout(cost_model, layout)
    placement = place_ranks(cost_model.problem, cost_model.framework, layout, estimate)
    estimate = add_placement_seconds(cost_model, layout, estimate, placement)
    return PlacedLayout(layout, estimate, placement)


def _with_alternative(chosen: PlacedLayout, other: PlacedLayout) -> PlacedLayout:
    """Return ``chosen`` with the placement of ``other`` added to the alternatives."""
    best = next(one for one in other.placement.alternatives if one.chosen)
    name = f"order {other.layout.order}, {best.name}"
    row = PlacementAlternative(name, best.uplink_bytes, best.exposed_seconds, chosen=False)
    alternatives = (*chosen.placement.alternatives, row)
    return replace(chosen, placement=replace(chosen.placement, alternatives=alternatives))
