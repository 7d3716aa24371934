"""Layout and its placement -> the same degrees in the framework's other rank order, if that wins.

The search keeps the framework's default order. Where a host holds ranks of several replicas, the
other order puts several stages into it instead, which no permutation of hosts can do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Candidate, Crossing, Estimate, Layout, Placement, Search
from parc.compiler.placement.place_ranks import place_ranks
from parc.compiler.placement.score_placement import added_seconds

LEAST_GAIN = 0.01
"""Share of the step that another order than the default must save."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A layout with what it costs and where it runs."""

    layout: Layout
    estimate: Estimate
    placement: Placement

    @property
    def seconds(self) -> float:
        """A step where it is placed."""
        return self.estimate.time.total_seconds + added_seconds(self.estimate, self.placement)


def turn_order(
    pricing: Pricing, layout: Layout, estimate: Estimate, placement: Placement
) -> Placed:
    """The placed layout, or the one in another legal order that saves more than 1 % of the step.

    Nothing is tried where ``layout.order`` is pinned, or where whole hosts belong to one stage and
    one replica: there a permutation of hosts does the same. What was weighed stands among the
    alternatives of the placement, the other order by its name. Ties keep the default.
    """
    kept = Placed(layout, estimate, placement)
    others = [_placed(pricing, other) for other in _orders(pricing, layout, placement)]
    if not others:
        return kept
    best = min(others, key=lambda one: one.seconds)
    if best.seconds < kept.seconds * (1 - LEAST_GAIN):
        return _weighed(best, kept)
    return _weighed(kept, best)


def with_chosen(search: Search, placed: Placed) -> Search:
    """``search`` with the placed layout at its head, where that is in another order."""
    first = search.ranked[0]
    if first.layout == placed.layout:
        return search
    estimate = placed.estimate
    seconds, peak = estimate.time.total_seconds, estimate.peak.total_bytes
    head = Candidate(placed.layout, seconds, peak, estimate.mfu)
    return replace(search, ranked=(head, *search.ranked[1:]))


def _orders(pricing: Pricing, layout: Layout, placement: Placement) -> list[Layout]:
    """The layout in the other orders that are legal and make a difference."""
    problem, framework = pricing.problem, pricing.framework
    aligned = layout.tp * layout.cp % placement.ranks_per_node == 0
    if problem.pins.order or aligned or layout.pp == 1 or layout.dp == 1:
        return []
    others = (order for order in framework.orders(problem) if order != layout.order)
    layouts = [replace(layout, order=order) for order in others]
    rules = all_rules(problem, framework)
    return [one for one in layouts if not any(rule.broken(problem, one) for rule in rules)]


def _placed(pricing: Pricing, layout: Layout) -> Placed:
    estimate = estimate_layout(pricing, layout)
    placement = place_ranks(pricing.problem, pricing.framework, layout, estimate)
    return Placed(layout, estimate, placement)


def _weighed(chosen: Placed, other: Placed) -> Placed:
    """``chosen``, with the best placement of the other order beside its own alternatives."""
    best = next(one for one in other.placement.alternatives if one.chosen)
    name = f"order {other.layout.order}, {best.name}"
    row = Crossing(name, best.uplink_bytes, best.exposed_seconds, chosen=False)
    alternatives = (*chosen.placement.alternatives, row)
    return replace(chosen, placement=replace(chosen.placement, alternatives=alternatives))
