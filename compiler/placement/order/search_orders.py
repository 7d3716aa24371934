"""Search for the order of hosts with the least cost, within a budget, against lower bounds.

Given a placement problem and a few named orders, the search minimizes
``PlacementCost.cost_sort_key``: exposed seconds (all orders within the tolerance of the best are
equal), then bytes over the busiest uplink, then bytes over all uplinks. It stops as soon as an
order meets the lower bounds; otherwise the bounds show how far from the optimum the result can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from math import prod

from parc.compiler.ir.frozen import frozen
from parc.compiler.placement.order.enumerate_orders import enumerate_orders
from parc.compiler.placement.order.link_loads import LinkLoads, NodeMessages, messages_by_node
from parc.compiler.placement.order.lower_bounds import ByteBound, TimeBound
from parc.compiler.placement.order.orders_from_boxes import BoxShape, build_orders_from_boxes
from parc.compiler.placement.order.placement_problem import (
    PlacementCost,
    PlacementProblem,
    round_significant_digits,
)
from parc.compiler.placement.order.swaps import improve_by_swaps

BOXES = "boxes"
SWAPS = "swaps"
ALL_ORDERS = "every order"
MOST_NODES, MOST_SITES = 16, 24
"""Limits on the node ranks and sites of a job for which all orders are evaluated. In a larger job,
counting the orders would already take too long."""
SMALL = 1e-9
"""Relative difference up to which two costs differ only by rounding error."""


@frozen
class SearchBudget:
    """Limits on the work of one search.

    The limits are counts and not times, so that every machine finds the same order.
    """

    max_orders: int
    """Largest number of orders of a job for which all orders are evaluated; 0 to never evaluate
    all."""
    box_messages: int
    """Limit on the messages that are counted to evaluate orders made of boxes."""
    swap_messages: int
    """Limit on the messages and links that are evaluated to try swaps."""
    swap_starts: int
    """Number of orders that swaps start from; 0 turns swaps off."""
    minimize_bytes: bool
    """True to reduce the weighted bytes when the exposed time cannot be reduced further."""


THOROUGH = SearchBudget(6_000, 3_000_000, 2_000_000, 3, minimize_bytes=True)
"""Budget for placing the chosen layout."""
QUICK = SearchBudget(0, 600_000, 0, 0, minimize_bytes=False)
"""Budget for each candidate of a layout search: named orders and the most promising boxes."""


@frozen
class EvaluatedOrder:
    """Order of hosts with its cost."""

    method: str
    """BOXES, SWAPS, ALL_ORDERS, or the name of the order."""
    nested: tuple[BoxShape, ...]
    """Box shapes of the order, the narrowest level first; empty for other methods."""
    place: tuple[int, ...]
    """Site (set of equivalent hosts) of every node rank."""
    cost: PlacementCost


@frozen
class SearchResult:
    """Best order of hosts, if it is better than the named ones, and the lower bounds."""

    better: EvaluatedOrder | None
    """Order that is better than all named orders; None if a named order is the best."""
    least: PlacementCost
    """Lower bound of each part of the cost. If all orders were evaluated, the bounds on bytes hold
    only for orders that are as fast as the best one."""
    floor_seconds: float
    """Exposed seconds up to which orders count as equally fast."""


def lower_bounds(bound: TimeBound) -> PlacementCost:
    """Return a lower bound for each part of the cost of an order of hosts.

    It is possible that no single order reaches all of these bounds.
    """
    bytes_ = ByteBound(bound)
    return PlacementCost(bound.exposed_seconds, bytes_.busiest_weighted, bytes_.total_weighted)


def search_orders(
    problem: PlacementProblem, named: Iterable[EvaluatedOrder], budget: SearchBudget
) -> SearchResult:
    """Search for an order of hosts that is better than all of the orders ``named``.

    The search stops when an order reaches the lower bounds. In a small job, all orders are
    evaluated. In a larger job, orders are built from boxes (sets of node ranks that share a
    switch), and the best orders are then improved by swaps. Swaps reduce the exposed time first,
    then the weighted bytes.
    """
    start = list(named)
    search = _OrderSearch(problem, budget)
    if search.is_optimal(start):
        return search.result(start, start)
    complete = search.all_orders() if budget.max_orders else None
    if complete:
        return search.result_if_all_evaluated(start, complete)
    found = [*start]
    found += search.evaluate_box_orders(found, by_bytes=False)
    found += search.improve_orders_by_swaps(found, by_bytes=False)
    found += search.evaluate_box_orders(found, by_bytes=True)
    found += search.improve_orders_by_swaps(found, by_bytes=True)
    return search.result(start, found)


class _OrderSearch:
    """State of one search: the placement problem, its lower bounds and the budget."""

    def __init__(self, problem: PlacementProblem, budget: SearchBudget) -> None:
        self._problem, self._budget = problem, budget
        self._bound = TimeBound(problem)
        # Byte bounds take time, so they are left out if bytes are not minimized.
        self._least = lower_bounds(self._bound) if budget.minimize_bytes else None

    @cached_property
    def _messages(self) -> list[NodeMessages]:
        """Return the messages of each phase (traffic of one parallel axis) by node rank."""
        return [messages_by_node(one, self._problem.nodes) for one in self._problem.flows]

    def tolerated_seconds(self, orders: Iterable[EvaluatedOrder]) -> float:
        """Return the exposed seconds up to which orders of hosts count as equally fast.

        The result is the least exposed time of ``orders`` plus the tolerance. If an order is
        already within the tolerance of the lower bound, the lower bound is used in place of the
        least exposed time: the search then stops, so a faster order might remain unknown.
        """
        exposed = min(one.cost.exposed_seconds for one in orders)
        if self._meets_time_bound(orders):
            exposed = self._bound.exposed_seconds
        return round_significant_digits(exposed + self._problem.tie_seconds)

    def result(
        self, start: Sequence[EvaluatedOrder], orders: Sequence[EvaluatedOrder]
    ) -> SearchResult:
        """Return the lower bounds and the best order of hosts in ``orders`` as the search result.

        The order is left out if an order of ``start`` is at least as good.
        """
        least = self._least or PlacementCost(self._bound.exposed_seconds, 0.0, 0.0)
        floor = self.tolerated_seconds(orders)
        return SearchResult(_cheapest_if_better_than(start, orders, floor), least, floor)

    def result_if_all_evaluated(
        self, start: Sequence[EvaluatedOrder], orders: Sequence[EvaluatedOrder]
    ) -> SearchResult:
        """Return the search result if ``orders`` contains all orders of hosts.

        Since all orders were evaluated, the cost of the best order is also the lower bound.
        """
        exposed = min(one.cost.exposed_seconds for one in orders)
        floor = round_significant_digits(exposed + self._problem.tie_seconds)
        least = replace(_cheapest_order(orders, floor).cost, exposed_seconds=exposed)
        return SearchResult(_cheapest_if_better_than(start, orders, floor), least, floor)

    def is_optimal(self, orders: Sequence[EvaluatedOrder]) -> bool:
        """Return True if the best of ``orders`` reaches all lower bounds.

        The bounds on bytes are ignored if the budget does not minimize bytes.
        """
        if self._least is None:
            return self._meets_time_bound(orders)
        best, tie = (
            _cheapest_order(orders, self.tolerated_seconds(orders)).cost,
            self._problem.tie_seconds,
        )
        return meets_exposed_bound(best, self._least, tie) and meets_byte_bounds(best, self._least)

    def _meets_time_bound(self, orders: Iterable[EvaluatedOrder]) -> bool:
        """Return True if one of ``orders`` reaches the lower bound on the exposed time.

        An exposed time within the tolerance of the bound counts as equal.
        """
        exposed = min(one.cost.exposed_seconds for one in orders)
        return exposed <= self._bound.exposed_seconds + self._problem.tie_seconds

    def all_orders(self) -> list[EvaluatedOrder]:
        """Return all orders of hosts with their cost; empty if the budget is too small for all."""
        problem, most = self._problem, self._budget.max_orders
        if problem.nodes > MOST_NODES or len(problem.sites.hosts_per_site) > MOST_SITES:
            return []
        # One more than allowed, to detect that there are too many.
        places = islice(enumerate_orders(problem.nodes, problem.sites), most + 1)
        found = [tuple(place) for place in places]
        if len(found) > most:
            return []
        return [EvaluatedOrder(ALL_ORDERS, (), place, problem.cost(place)) for place in found]

    def evaluate_box_orders(
        self, start: Sequence[EvaluatedOrder], by_bytes: bool
    ) -> list[EvaluatedOrder]:
        """Return orders built from boxes (sets of node ranks that share a switch), with their cost.

        The evaluation stops when the budget is used up or an order reaches the lower bounds.
        """
        problem, found = self._problem, list[EvaluatedOrder]()
        size = _evaluation_work(problem) * (1 + len(problem.sites.tiers))
        # At least four orders, however large the job.
        most = max(self._budget.box_messages // size, 4)
        seen = {one.place for one in start}
        for order in islice(build_orders_from_boxes(problem, self._messages, by_bytes), most):
            if self._is_done([*start, *found], by_bytes):
                break
            if order.place not in seen:
                seen.add(order.place)
                cost = problem.cost(order.place)
                found.append(EvaluatedOrder(BOXES, order.nested, order.place, cost))
        return found

    def improve_orders_by_swaps(
        self, orders: Sequence[EvaluatedOrder], by_bytes: bool
    ) -> list[EvaluatedOrder]:
        """Return the best of ``orders``, each improved by swaps of hosts.

        If several orders have equal cost, only one of them is improved. The larger the job, the
        fewer orders are improved. With ``by_bytes``, swaps reduce the weighted bytes of orders that
        count as equally fast. Otherwise they reduce the exposed time.
        """
        if not self._budget.swap_starts or self._is_done(orders, by_bytes):
            return []
        floor = self.tolerated_seconds(orders) if by_bytes else 0.0
        starts, trials = self._swap_budget()
        seen: dict[PlacementCost, EvaluatedOrder] = {}
        for one in sorted(orders, key=lambda one: one.cost.cost_sort_key(floor)):
            if len(seen) < starts:
                # Orders of equal cost are mostly equivalent, and swaps would improve them alike.
                seen.setdefault(one.cost, one)
        return [self._improve_order(one, trials, floor) for one in seen.values()]

    def _is_done(self, orders: Sequence[EvaluatedOrder], by_bytes: bool) -> bool:
        """Return True if no further search is needed.

        With ``by_bytes``, one of ``orders`` must reach all lower bounds, unless the budget does not
        minimize bytes. Without ``by_bytes``, the lower bound on the exposed time is sufficient.
        """
        if by_bytes:
            return self._least is None or self.is_optimal(orders)
        return self._meets_time_bound(orders)

    def _improve_order(self, order: EvaluatedOrder, trials: int, floor: float) -> EvaluatedOrder:
        """Return the order of hosts after up to ``trials`` swaps were tried to improve it."""
        problem = self._problem
        loads = LinkLoads(problem, self._messages, order.place)
        improve_by_swaps(loads, trials, floor)
        place = tuple(loads.place[: problem.nodes])
        return EvaluatedOrder(SWAPS, order.nested, place, problem.cost(place))

    def _swap_budget(self) -> tuple[int, int]:
        """Return (number of orders to improve, number of swaps to try for each order).

        These numbers keep the work of all swaps within the budget. The work per order is about four
        counts of all messages at all levels. The work per swap is proportional to the number of
        phases (traffic of one parallel axis) times the number of switches.
        """
        problem, budget = self._problem, self._budget
        tiers, wide = problem.sites.tiers, problem.sites.multi_host_domains
        zones = sum(len(tier.bytes_per_s) for tier in tiers) + wide * problem.nodes
        start = 4 * _evaluation_work(problem) * (len(tiers) + wide)
        starts = max(1, min(budget.swap_starts, budget.swap_messages // start))
        # At least a tenth of the budget remains for the swaps themselves.
        left = max(budget.swap_messages - starts * start, budget.swap_messages // 10)
        return starts, left // (starts * (20 + zones) * len(self._messages))


def _cheapest_order(orders: Iterable[EvaluatedOrder], floor: float) -> EvaluatedOrder:
    """Return the order of hosts with the least cost; on a tie, the first one."""
    return min(orders, key=lambda one: one.cost.cost_sort_key(floor))


def _cheapest_if_better_than(
    start: Iterable[EvaluatedOrder], orders: Iterable[EvaluatedOrder], floor: float
) -> EvaluatedOrder | None:
    """Return the best of ``orders``, or None if an order of ``start`` is at least as good."""
    best, named = _cheapest_order(orders, floor), _cheapest_order(start, floor)
    return best if best.cost.cost_sort_key(floor) < named.cost.cost_sort_key(floor) else None


def meets_exposed_bound(cost: PlacementCost, least: PlacementCost, tie_seconds: float) -> bool:
    """Return True if ``cost`` is within the tolerance of the lower bound on the exposed time."""
    return cost.exposed_seconds <= (least.exposed_seconds + tie_seconds) * (1 + SMALL)


def meets_byte_bounds(cost: PlacementCost, least: PlacementCost) -> bool:
    """Return True if the weighted bytes of ``cost`` reach both of their lower bounds.

    One bound is for the busiest uplink, the other for the sum over all uplinks.
    """
    pairs = (
        (cost.busiest_weighted, least.busiest_weighted),
        (cost.total_weighted, least.total_weighted),
    )
    return all(sent <= fewest * (1 + SMALL) for sent, fewest in pairs)


def _evaluation_work(problem: PlacementProblem) -> int:
    """Return a count that is proportional to the work of evaluating one order of hosts.

    The count is the sum of the messages, the members of all-to-all groups and the node ranks.
    """
    flows = problem.flows
    sent = sum(len(one.senders) + sum(map(len, one.member_nodes)) for one in flows)
    return sent + problem.nodes


def box_sizes(nested: tuple[BoxShape, ...]) -> tuple[int, ...]:
    """Return the number of node ranks per box for each level, the narrowest level first."""
    return tuple(map(prod, nested))
