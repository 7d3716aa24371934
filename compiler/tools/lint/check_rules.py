"""Check the facts in a launch file against the rules of a training framework or serving engine.

The rules are those on the layout; if the cluster is known, those on exported environment variables;
and those on memory, if the file contains all facts that an estimate needs. A rule that needs a fact
which the file does not contain is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from parc.backends.base import Engine, Framework
from parc.backends.shared.launch_rules import check_device_connections, check_network_variables
from parc.compiler.checks.check_memory import check_host_memory, check_memory
from parc.compiler.checks.check_placement import PLACEMENT_CHECKS
from parc.compiler.checks.check_serving_plan import SERVING_PLAN_CHECKS
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.diagnostics.sink import PlanCheck
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.evaluate.layout_rules import all_rules
from parc.compiler.evaluate.service_rules import service_rules
from parc.compiler.ir import (
    Layout,
    PipelineSplit,
    Placement,
    Plan,
    Problem,
    ServingLayout,
    ServingPlan,
    ServingProblem,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.plan import Search
from parc.compiler.ir.rule import Rule
from parc.compiler.ir.serving_plan import ServingRule
from parc.compiler.placement.place_service import place_service
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.enumerate_layouts import truncated_split
from parc.compiler.search.explain_invalid import CONSERVATION
from parc.compiler.search.explain_oversized import OVERSIZED, explain_oversized
from parc.compiler.tools.lint.options import SkippedRule, describe_missing_fact
from parc.compiler.tools.lint.partial_ir import (
    build_partial_instance,
    find_missing_fact,
    is_field_known,
    mark_fields_unknown,
    with_field_values,
)
from parc.compiler.tools.lint.script import LintedScript, ScriptSink
from parc.compiler.topology.arrange_hosts import service_hosts
from parc.compiler.topology.node_groups import ranks_per_node

ESTIMATED = (OVERSIZED, "G02", "R15")
"""Codes of the rules that need an estimate."""
DEGREES = ("layout.tp", "layout.pp", "layout.dp", "layout.pcp")
"""Fields whose product is the number of ranks of an engine."""
OF_SPECS = frozenset(
    ("E14", "G06", "G07", "G13", "L10", "L20", "L29", "L30", "L31", "L40", "V30", "V45")
)
"""Codes of checks on settings that only a spec has: load, limits, launch, and ports of all servers.
The linters of the engines check the ports and the environment of a script themselves."""
P = TypeVar("P", Problem, ServingProblem)
L = TypeVar("L", Layout, ServingLayout)


@frozen
class LaunchFacts(Generic[P, L]):
    """Problem and layout that a launch file describes: completed, and with known fields only."""

    problem: P
    """Problem with a value in each field. Unknown fields have a stand-in, which appears only in the
    words of a finding."""
    layout: L
    known_problem: P
    """Problem without the fields that neither the launch file nor an option sets. Rules are tested
    on it."""
    known_layout: L


def check_layout(
    facts: LaunchFacts[Problem, Layout],
    framework: Framework,
    sink: ScriptSink,
    exempt: Collection[str],
    unmodeled: str = "",
) -> tuple[list[SkippedRule], set[str]]:
    """Report the rules that a training layout breaks; return (skipped rules, broken codes).

    Rules with a code in ``exempt`` are not checked. Rules about strategies that a framework cannot
    express (codes E) are not checked either, because the flags of the launch file express them.
    Rules about memory are skipped if ``unmodeled`` names a flag whose effect on memory is unknown.
    """
    broken: set[str] = set()
    _check_split(facts, framework, broken, sink)
    rules = [
        rule
        for rule in all_rules(facts.problem, framework)
        if rule.code[0] != "E" and rule.code not in exempt
    ]
    # If tp x cp x pp does not divide the GPUs (D09), ranks cannot be spread evenly (T11), and dp is
    # unknown.
    implied = {rule.code: "D09" for rule in rules if "layout.dp" in rule.fields}
    skipped = _check_rules(rules, facts, broken, sink, {**implied, "T11": "D09"})
    if not broken:  # `parc check` builds no plan of an invalid layout either
        plan = partial_training_plan(facts, framework)
        skipped += check_partial_plan(plan, PLACEMENT_CHECKS, sink)
        plan = with_field_values(plan, problem=facts.known_problem)
        skipped += _check_estimate(plan, framework, sink, unmodeled)
    return skipped, broken


def _check_estimate(
    plan: Plan, framework: Framework, sink: ScriptSink, unmodeled: str
) -> list[SkippedRule]:
    """Report a layout that does not fit into memory; return the skipped rules."""
    if unmodeled:
        return [SkippedRule(code, f"the effect of {unmodeled} on memory", "") for code in ESTIMATED]
    estimated, checks, skipped = estimated_checks(plan, framework, sink)
    return skipped + check_partial_plan(estimated, checks, sink)


def check_service(
    facts: LaunchFacts[ServingProblem, ServingLayout],
    engine: Engine,
    sink: ScriptSink,
    checks: Iterable[PlanCheck[ServingPlan]] = (),
) -> list[SkippedRule]:
    """Report each rule that a serving layout breaks; return the skipped rules.

    If the layout breaks no rule, run the placement checks and ``checks``, the engine's checks of
    finished plans.

    If no cache block fits into memory (V02), the longest request does not fit either (V01). In this
    case only V02 is reported.
    """
    broken: set[str] = set()
    rules = [one for one in service_rules(facts.problem, engine) if not one.of_plans_only]
    skipped = _check_rules(rules, facts, broken, sink, {"V01": "V02"})
    counted = is_field_known(facts.known_problem.cluster, "racks")
    cluster, ranks = facts.problem.cluster, facts.layout.gpus
    if counted and ranks > cluster.gpus and "V05" not in broken:
        finding = Finding(
            f"the world size ({ranks}) is larger than the number of GPUs ({cluster.gpus})",
            label=f"each of the {ranks} ranks needs a GPU of its own",
            help="reduce tp, pp or dp, or use more GPUs",
        )
        sink.report("V05", finding, at=sink.positions.first_path_in_spec(DEGREES))
    elif not broken:
        problem = mark_fields_unknown(facts.known_problem, ["launch", "pins", "endpoint"])
        known: dict[str, Any] = {"problem": problem, "layout": facts.known_layout}
        needed = service_hosts(facts.layout, cluster.node.gpus)
        if counted and needed is not None and needed <= cluster.nodes:
            known["placement"] = place_service(facts.problem, engine, facts.layout)
        plan = build_partial_instance(ServingPlan, **known)
        applied = (*SERVING_PLAN_CHECKS, *checks)
        applied = tuple(one for one in applied if not OF_SPECS.issuperset(one.codes))
        skipped += check_partial_plan(plan, applied, sink)
    return skipped


def check_partial_plan(
    plan: Any, checks: Iterable[PlanCheck[Any]], sink: ScriptSink
) -> list[SkippedRule]:
    """Run ``checks`` on a plan with unknown fields; return the skipped checks.

    A check is skipped if it needs an unknown fact. Findings that it made before are not reported.
    """
    skipped = []
    for check in checks:
        trial = Sink()
        missing = find_missing_fact(partial(check.run, plan, trial))
        if missing is not None:
            reason = describe_missing_fact(missing, sink.flags)
            skipped += [SkippedRule(code, *reason) for code in check.codes]
            continue
        sink.checked.update(check.codes)
        for found in trial.diagnostics:
            sink.report(found.code.removeprefix("PARC-"), found.finding, at=found.path)
    return skipped


def partial_training_plan(facts: LaunchFacts[Problem, Layout], framework: Framework) -> Plan:
    """Return the plan that a launch describes; estimate, search and launch settings are unknown.

    Hosts are placed in the order of the cluster if their number and all parallel sizes are known.
    """
    problem, layout = facts.known_problem, facts.known_layout
    known: dict[str, Any] = {"problem": mark_fields_unknown(problem, ["launch"]), "layout": layout}
    sizes = (*("tp", "cp", "pp", "ep", "etp", "dp_replicate", "dp_shard"), "order", "gtp", "egtp")
    sized = all(is_field_known(layout, name) for name in sizes)
    if sized and is_field_known(problem.cluster, "racks"):
        hosts = problem.cluster.hosts
        per_node = ranks_per_node(facts.problem.cluster.node.gpus, layout.world)
        dense, expert = framework.device_meshes(layout)
        known["placement"] = build_partial_instance(
            Placement,
            order=layout.order,
            dense=dense,
            expert=expert,
            hosts=hosts[: layout.world // per_node],
            ranks_per_node=per_node,
        )
    return build_partial_instance(Plan, **known)


def framework_or_even_split(
    problem: Problem, framework: Framework, pp: int, vpp: int, given: bool
) -> PipelineSplit:
    """Return the split of the layers into pipeline stages.

    This is the split that the framework uses, or else an even split. The even split is returned if
    the framework cannot split the layers. It is also returned if the framework's split is uneven
    and no flag requests a split.

    Args:
        problem: problem with all settings of pipeline stages that the launch file contains.
        framework: training framework that splits the layers.
        pp: pipeline parallel size.
        vpp: virtual pipeline size.
        given: True if a flag requests a split. Without such a flag, a framework splits evenly or
            stops.
    """
    found = framework.find_split(problem, pp, vpp)
    if found is None or (not given and found.form != "even"):
        return truncated_split(problem.model.layers, pp, vpp, problem.model.mtp_layers)
    return found


def _check_split(
    facts: LaunchFacts[Problem, Layout], framework: Framework, broken: set[str], sink: ScriptSink
) -> None:
    """Report why the framework cannot split the layers as the flags require.

    If it cannot, the code of the finding and the codes of rules that would report the same problem
    are added to ``broken``.
    """
    problem, layout = facts.problem, facts.known_layout
    if not is_field_known(layout, "split") or not is_field_known(layout, "vpp"):
        return
    if framework.find_split(problem, layout.pp, layout.vpp) is None:
        # The stand-in split breaks the conservation rules by construction: report the reason only.
        code, path, finding = framework.why_no_split(problem, layout.pp, layout.vpp)
        sink.report(code, finding, at=path)
        broken.update((code, *CONSERVATION))


def _check_rules(
    rules: Iterable[Rule | ServingRule],
    facts: LaunchFacts[Any, Any],
    broken: set[str],
    sink: ScriptSink,
    implied: Mapping[str, str],
) -> list[SkippedRule]:
    """Report each broken rule, and add its code to ``broken``; return the skipped rules.

    ``implied`` maps the code of a rule to the code of another rule that reports the same mistake.
    If that other rule is broken, the first rule is not checked.
    """
    skipped: list[SkippedRule] = []
    for rule in rules:
        if rule.code in broken or implied.get(rule.code) in broken:
            continue
        missing = find_missing_fact(partial(_check_rule, rule, facts, broken, sink))
        if missing is None:
            sink.checked.add(rule.code)
        else:
            skipped.append(SkippedRule(rule.code, *describe_missing_fact(missing, sink.flags)))
    return skipped


def _check_rule(
    rule: Rule | ServingRule, facts: LaunchFacts[Any, Any], broken: set[str], sink: ScriptSink
) -> None:
    if rule.broken(facts.known_problem, facts.known_layout):
        broken.add(rule.code)
        finding = rule.explain(facts.problem, facts.layout)
        sink.report(rule.code, finding, at=sink.positions.first_path_in_spec(rule.fields))


_VARIABLE = re.compile(r"((?:NCCL|GLOO|CUDA)_[A-Z0-9_]+)=(.*)")


def lint_environment(
    script: LintedScript, problem: Problem, layout: Layout, sink: ScriptSink
) -> None:
    """Report environment variables of NCCL and CUDA that do not fit the cluster or the layout.

    The findings (N04, N06, N08, N09) point to the line of ``script`` that sets the variable.
    """
    env: dict[str, str] = {}
    spans: dict[str, Span] = {}
    for word in script.words:
        match = _VARIABLE.fullmatch(word.text)
        if match and not word.dynamic and word.span not in script.branches:
            env[match[1]] = match[2]
            spans[f"launch.env.{match[1]}"] = word.span
    # Prevents a second finding about an unset GLOO_SOCKET_IFNAME (N02) after that of lint_launch.
    env.setdefault("GLOO_SOCKET_IFNAME", "")
    sink.locate(spans, {}, Span(script.name, 1, 1))
    launch = with_field_values(problem.launch, env=tuple(env.items()))
    plan = build_partial_instance(
        Plan, problem=with_field_values(problem, launch=launch), layout=layout
    )
    for check in (check_network_variables, check_device_connections):
        find_missing_fact(partial(check, plan, sink))


def estimated_checks(
    plan: Plan, framework: Framework, sink: ScriptSink
) -> tuple[Plan, tuple[PlanCheck[Plan], ...], list[SkippedRule]]:
    """Return (``plan`` with an estimate, checks that need the estimate, skipped rules).

    If a fact that the estimate needs is unknown, ``plan`` is returned unchanged, there are no
    checks, and all rules that need the estimate are skipped.
    """
    found: list[tuple[CostModel, Plan]] = []

    def estimate() -> None:
        cost_model = cost_model_for(plan.problem, framework)
        # No other layout was evaluated, so that findings suggest only more recomputation.
        search = build_partial_instance(Search, ranked=())
        values = {"estimate": estimate_layout(cost_model, plan.layout), "search": search}
        found.append((cost_model, with_field_values(plan, **values)))

    missing = find_missing_fact(estimate)
    if missing is not None:
        reason = describe_missing_fact(missing, sink.flags)
        return plan, (), [SkippedRule(code, *reason) for code in ESTIMATED]
    cost_model, estimated = found[0]
    # A launch file states no headroom, and a launch that runs must not be refused: it may fit if
    # the low end of its interval is within the device.
    if estimated.estimate.peak.low_bytes > plan.problem.cluster.gpu.memory_bytes:
        return estimated, (PlanCheck((OVERSIZED,), partial(_report_oversized, cost_model)),), []
    checks: tuple[PlanCheck[Plan], ...] = (
        PlanCheck((OVERSIZED,), lambda _, __: None),
        PlanCheck(("G02",), partial(check_memory, cost_model)),
        PlanCheck(("R15",), partial(check_host_memory, cost_model)),
    )
    return estimated, checks, []


def _report_oversized(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report that the layout of the launch does not fit into memory (R17)."""
    explain_oversized(cost_model, plan.layout, {}, sink)
