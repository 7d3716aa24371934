"""Findings that explain why a search has no valid layout."""

from __future__ import annotations

from collections.abc import Iterable

from parc.backends.base import Framework
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Problem
from parc.compiler.search.suggest_pin_fix import suggest_pin_fix

CONSERVATION = ("P01", "P02")
"""Rules that a stand-in split (``floor_split``) violates by construction."""


def explain_invalid(
    problem: Problem, framework: Framework, layouts: Iterable[Layout], sink: Sink
) -> None:
    """Report why none of ``layouts`` is valid.

    A rule that all layouts violate becomes a finding at the pin that it reads. If there is no such
    rule, the layout with the fewest violations is explained.
    """
    rules = all_rules(problem, framework)
    broken = {
        layout: [rule for rule in rules if rule.broken(problem, layout)] for layout in layouts
    }
    if not broken:
        sink.report("G01", _nothing_enumerated(problem), at="layout")
        return
    closest = min(broken, key=lambda layout: len(broken[layout]))
    always = set.intersection(*({rule.code for rule in found} for found in broken.values()))
    shown = [rule for rule in broken[closest] if rule.code in always] or broken[closest]
    if framework.splits(problem, closest.pp, closest.vpp) is None:
        # This layout has a stand-in split. The framework explains why it has no real one.
        code, path, finding = framework.why_no_split(problem, closest.pp, closest.vpp)
        sink.report(code, suggest_pin_fix(problem, framework, finding, path), at=path)
        shown = [rule for rule in shown if rule.code not in CONSERVATION]
    for rule in shown:
        path = sink.positions.first_written(rule.fields)
        finding = suggest_pin_fix(problem, framework, rule.explain(problem, closest), path)
        sink.report(rule.code, finding, at=path)


def _nothing_enumerated(problem: Problem) -> Finding:
    return Finding(
        message=f"no layout of {problem.cluster.gpus} GPUs satisfies the pins"
        + (" and the limits" if problem.goals.limits else ""),
        help="unpin an axis, or change the number of GPUs",
        causes=(
            Cause("cluster", f"{problem.cluster.nodes} hosts x {problem.cluster.node.gpus}"),
            *(
                Cause(f"goals.limits.{limit.axis}", f"limits {limit.axis}")
                for limit in problem.goals.limits
            ),
        ),
    )
