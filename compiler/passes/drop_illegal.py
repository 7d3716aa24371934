"""Drop layouts that the framework would refuse; say so where nothing is left."""

from __future__ import annotations

from collections.abc import Iterable

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def explain_illegal(
    problem: Problem, rules: tuple[Rule, ...], layouts: Iterable[Layout], sink: Sink
) -> None:
    """Report why none of ``layouts`` is legal.

    A rule that every layout breaks is a finding of its own, at the pin that it reads. Where no
    single rule is to blame, the layout that breaks the fewest is explained.
    """
    broken: dict[Layout, tuple[Rule, ...]] = {
        layout: tuple(rule for rule in rules if rule.broken(problem, layout)) for layout in layouts
    }
    if not broken:
        sink.report("G01", _nothing_enumerated(problem), at="layout")
        return
    closest = min(broken, key=lambda layout: len(broken[layout]))
    codes = [set(rule.code for rule in found) for found in broken.values()]
    always = set.intersection(*codes)
    shown = [rule for rule in broken[closest] if rule.code in always] or list(broken[closest])
    for rule in shown:
        finding = rule.explain(problem, closest)
        sink.report(rule.code, finding, at=culprit(rule, problem, sink))


def culprit(rule: Rule, problem: Problem, sink: Sink) -> str:
    """The path to point at: the first field of the rule that the user wrote, else its first."""
    for path in rule.fields:
        if sink.positions.written(path):
            return path
    return rule.fields[0]


def _nothing_enumerated(problem: Problem) -> Finding:
    return Finding(
        message=f"no layout of {problem.cluster.gpus} GPUs satisfies the pins",
        help="unpin an axis, or change the number of GPUs",
        causes=(Cause("cluster", f"{problem.cluster.nodes} hosts x {problem.cluster.node.gpus}"),),
    )
