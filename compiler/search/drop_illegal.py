"""Drop layouts that the framework would refuse; say so where nothing is left."""

from __future__ import annotations

from collections.abc import Iterable

from parc.backends.base import Framework
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.ir import Layout, Problem
from parc.compiler.search.suggest_pin_fix import mend_pins

CONSERVATION = ("P01", "P02")
"""Rules that a stand-in split breaks by construction."""


def explain_illegal(
    problem: Problem, framework: Framework, layouts: Iterable[Layout], sink: Sink
) -> None:
    """Report why none of ``layouts`` is legal.

    A rule that every layout breaks is a finding of its own, at the pin that it reads. Where no
    single rule is to blame, the layout that breaks the fewest is explained.
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
        # The layout stands on a stand-in split: the framework knows why there is no real one.
        code, path, finding = framework.why_no_split(problem, closest.pp, closest.vpp)
        sink.report(code, mend_pins(problem, framework, finding, path), at=path)
        shown = [rule for rule in shown if rule.code not in CONSERVATION]
    for rule in shown:
        path = sink.positions.first_written(rule.fields)
        finding = mend_pins(problem, framework, rule.explain(problem, closest), path)
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
