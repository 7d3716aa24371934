"""Check of the rank order that a spec sets."""

from __future__ import annotations

from parc.backends.registry import framework_of_problem
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Problem
from parc.compiler.search.other_frameworks import frameworks_that, with_frameworks_in_help


def has_valid_rank_order(problem: Problem, sink: Sink) -> bool:
    """Return True if the framework supports the rank order that the spec sets; else report E11.

    The result is True if the spec sets no rank order.
    """
    order = problem.pins.order
    if order is None:
        return True
    valid = framework_of_problem(problem).rank_orders(problem)
    if order in valid:
        return True
    name = problem.framework
    finding = Finding(
        f"{name} does not support rank order {order}",
        label="an order lists the axes from the fastest-varying to the slowest",
        help=f"valid order: {', '.join(valid)}",
        fix=f"layout.order: {valid[0]}",
        targets=(name,),
    )
    others = frameworks_that(lambda found, moved: order in found.rank_orders(moved), problem)
    finding = with_frameworks_in_help(finding, tuple(others))
    sink.report("E11", finding, at="layout.order")
    return False
