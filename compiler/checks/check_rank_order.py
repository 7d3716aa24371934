"""Check of the rank order that a spec sets."""

from __future__ import annotations

from parc.backends.registry import framework, framework_of_problem, installed_backends
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Problem


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
    others = [
        one.name
        for one in installed_backends("framework")
        if one.name != name and order in framework(one.name).rank_orders(problem)
    ]
    finding = Finding(
        f"{name} does not support rank order {order}",
        label="an order lists the axes from the fastest-varying to the slowest",
        help=f"valid order: {', '.join(valid)}"
        + (f"; frameworks that support this: {', '.join(others)}" if others else ""),
        fix=f"layout.order: {valid[0]}",
        targets=(name,),
    )
    sink.report("E11", finding, at="layout.order")
    return False
