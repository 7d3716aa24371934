"""Rules about memory, for launches with all facts that an estimate needs."""

from __future__ import annotations

from functools import partial

from parc.backends.base import Framework
from parc.compiler.checks.check_memory import check_host_memory, check_memory
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.plan_check import PlanCheck
from parc.compiler.evaluate.estimate_layout import estimate_layout
from parc.compiler.ir import Plan
from parc.compiler.ir.plan import Search
from parc.compiler.resolve.resolve_kernels import cost_model_for
from parc.compiler.search.explain_oversized import OVERSIZED, explain_oversized
from parc.compiler.tools.lint.options import SkippedRule, describe_missing_fact
from parc.compiler.tools.lint.partial_ir import (
    build_partial_instance,
    find_missing_fact,
    with_field_values,
)
from parc.compiler.tools.lint.script import ScriptSink

CODES = (OVERSIZED, "G02", "R15")


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
        return plan, (), [SkippedRule(code, *reason) for code in CODES]
    cost_model, priced = found[0]
    # A launch file states no headroom, and a launch that runs must not be refused: it may fit if
    # the low end of its interval is within the device.
    if priced.estimate.peak.low_bytes > plan.problem.cluster.gpu.memory_bytes:
        return priced, (PlanCheck((OVERSIZED,), partial(_report_oversized, cost_model)),), []
    checks: tuple[PlanCheck[Plan], ...] = (
        PlanCheck((OVERSIZED,), lambda _, __: None),
        PlanCheck(("G02",), partial(check_memory, cost_model)),
        PlanCheck(("R15",), partial(check_host_memory, cost_model)),
    )
    return priced, checks, []


def _report_oversized(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report that the layout of the launch does not fit into memory (R17)."""
    explain_oversized(cost_model, plan.layout, {}, sink, which="the layout")
