"""Report sizes of groups that have no effect in the plan, because it has no such groups."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan


def check_group_sizes(plan: Plan, sink: Sink) -> None:
    """Report ``layout.cp_a2a`` and ``layout.dp_shard`` above 1 without effect in the plan (E14)."""
    pins, layout = plan.problem.pins, plan.layout
    # A layout that fixes cp at 1 is reported before the search.
    if (pins.cp_a2a or 1) > 1 and layout.cp == 1 and pins.cp != 1:
        finding = Finding(
            f"layout.cp_a2a {pins.cp_a2a} has no effect, because PARC chose cp 1",
            label="without context parallelism, no ranks exchange heads for tokens",
            help="set layout.cp to a multiple of cp_a2a, and layout.cp_comm to a2a+p2p",
            fix="remove layout.cp_a2a",
            causes=(Cause("layout.cp", "cp 1"),),
        )
        sink.report("E14", finding, at="layout.cp_a2a", key=True)
    if (pins.dp_shard or 1) > 1 and layout.zero_stage == 0:
        finding = Finding(
            f"layout.dp_shard {pins.dp_shard} has no effect at ZeRO stage 0",
            label="without sharding, every data-parallel rank stores the whole state",
            help="set layout.zero_stage to a stage above 0",
            fix="remove layout.dp_shard",
            causes=(Cause("layout.zero_stage", "stage 0"),),
        )
        sink.report("E14", finding, at="layout.dp_shard", key=True)
