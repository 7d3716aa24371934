"""Rules of a framework or an engine, checked as far as the facts of a launch file go.

The rules are those of the layout and, if the cluster is known, those of the environment variables
that a script exports.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from parc.backends.base import Engine, Framework
from parc.backends.shared.launch_rules import check_connections, check_fabric
from parc.compiler.diagnostics import Span
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import Layout, Plan, Problem, ServingLayout, ServingProblem, Split
from parc.compiler.ir.rule import Rule
from parc.compiler.ir.serving_plan import ServingRule
from parc.compiler.search.enumerate_layouts import floor_split
from parc.compiler.search.explain_invalid import CONSERVATION
from parc.compiler.tools.lint.options import SkippedRule, describe_missing_fact
from parc.compiler.tools.lint.partial_ir import (
    build_partial,
    find_missing_fact,
    is_known,
    with_values,
)
from parc.compiler.tools.lint.script import Script, ScriptSink

P = TypeVar("P", Problem, ServingProblem)
L = TypeVar("L", Layout, ServingLayout)


@dataclass(frozen=True, slots=True)
class LaunchFacts(Generic[P, L]):
    """A launch file as a problem and a layout, in full and restricted to the known fields."""

    problem: P
    """Has a value in every field; stand-ins for unknown ones are used for wording only."""
    layout: L
    known_problem: P
    """Lacks the fields that neither the launch file nor its user gives; rules are tested on it."""
    known_layout: L


def check_layout(
    facts: LaunchFacts[Problem, Layout],
    framework: Framework,
    sink: ScriptSink,
    exempt: Collection[str],
) -> tuple[list[SkippedRule], set[str]]:
    """Report the rules that a training layout breaks; return skipped rules and broken codes.

    Rules on what a framework can express (E) do not apply to a launch file, which exists already.
    """
    broken: set[str] = set()
    _check_split(facts, framework, broken, sink)
    rules = [
        rule
        for rule in all_rules(facts.problem, framework)
        if rule.code[0] != "E" and rule.code not in exempt
    ]
    # If tp x cp x pp does not divide the GPUs (D09), ranks cannot be spread evenly (T11) either.
    return _check(rules, facts, broken, sink, {"T11": "D09"}), broken


def check_service(
    facts: LaunchFacts[ServingProblem, ServingLayout], engine: Engine, sink: ScriptSink
) -> list[SkippedRule]:
    """Report the rules that a serving layout breaks; return the skipped rules.

    If no cache block fits (V02), no long request does (V01), which is not reported again.
    """
    return _check(service_rules(facts.problem, engine), facts, set(), sink, {"V01": "V02"})


def split_or_even(problem: Problem, framework: Framework, pp: int, vpp: int, given: bool) -> Split:
    """Return the split that the framework builds; a stand-in of equal chunks if it builds none.

    Args:
        problem: the problem with all pins on stages.
        framework: what splits.
        pp: pipeline-parallel size.
        vpp: virtual pipeline size.
        given: a flag asks for a split; without one a framework splits evenly or not at all.
    """
    found = framework.splits(problem, pp, vpp)
    if found is None or (not given and found.form != "even"):
        return floor_split(problem.model.layers, pp, vpp)
    return found


def _check_split(
    facts: LaunchFacts[Problem, Layout], framework: Framework, broken: set[str], sink: ScriptSink
) -> None:
    """Report why the layers cannot be split as the flags require."""
    problem, layout = facts.problem, facts.known_layout
    if not is_known(layout, "split") or not is_known(layout, "vpp"):
        return
    if framework.splits(problem, layout.pp, layout.vpp) is None:
        # The stand-in split breaks the conservation rules by construction: report the reason only.
        code, path, finding = framework.why_no_split(problem, layout.pp, layout.vpp)
        sink.report(code, finding, at=path)
        broken.update((code, *CONSERVATION))


def _check(
    rules: Iterable[Rule | ServingRule],
    facts: LaunchFacts[Any, Any],
    broken: set[str],
    sink: ScriptSink,
    implied: Mapping[str, str],
) -> list[SkippedRule]:
    """Check each rule; ``implied`` maps a code to the code whose finding already covers it."""
    skipped: list[SkippedRule] = []
    for rule in rules:
        if rule.code in broken or implied.get(rule.code) in broken:
            continue
        missing = find_missing_fact(partial(_check_rule, rule, facts, broken, sink))
        if missing is not None:
            skipped.append(SkippedRule(rule.code, *describe_missing_fact(missing, sink.flags)))
    return skipped


def _check_rule(
    rule: Rule | ServingRule, facts: LaunchFacts[Any, Any], broken: set[str], sink: ScriptSink
) -> None:
    if rule.broken(facts.known_problem, facts.known_layout):
        broken.add(rule.code)
        finding = rule.explain(facts.problem, facts.layout)
        sink.report(rule.code, finding, at=sink.positions.first_written(rule.fields))


_VARIABLE = re.compile(r"((?:NCCL|GLOO|CUDA)_[A-Z0-9_]+)=(.*)")


def lint_environment(script: Script, problem: Problem, layout: Layout, sink: ScriptSink) -> None:
    """Report N04, N06, N08 and N09 at the exports of ``script``."""
    env: dict[str, str] = {}
    spans: dict[str, Span] = {}
    for word in script.words:
        match = _VARIABLE.fullmatch(word.text)
        if match and not word.dynamic and word.span.line not in script.branches:
            env[match[1]] = match[2]
            spans[f"launch.env.{match[1]}"] = word.span
    env.setdefault("GLOO_SOCKET_IFNAME", "")  # ``lint_launch`` has reported N02 already
    sink.locate(spans, {}, Span(script.name, 1, 1))
    launch = with_values(problem.launch, env=tuple(env.items()))
    plan = build_partial(Plan, problem=with_values(problem, launch=launch), layout=layout)
    for check in (check_fabric, check_connections):
        find_missing_fact(partial(check, plan, sink))
