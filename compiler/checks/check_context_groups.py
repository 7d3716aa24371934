"""Report groups of a context-parallel exchange in a plan with cp 1, where they have no effect."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan


def check_context_groups(plan: Plan, sink: Sink) -> None:
    """Report ``layout.cp_a2a`` above 1 if the plan has no context parallelism (E14)."""
    groups, cp = plan.problem.pins.cp_a2a, plan.layout.cp
    # A layout that fixes cp at 1 is reported before the search.
    if groups in (None, 1) or cp != 1 or plan.problem.pins.cp == 1:
        return
    finding = Finding(
        f"layout.cp_a2a {groups} has no effect, because PARC chose cp 1",
        label="without context parallelism, no ranks exchange heads for tokens",
        help="set layout.cp to a multiple of cp_a2a, and layout.cp_comm to a2a+p2p",
        fix="remove layout.cp_a2a",
        causes=(Cause("layout.cp", "cp 1"),),
    )
    sink.report("E14", finding, at="layout.cp_a2a", key=True)
