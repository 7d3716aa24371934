"""Warnings and advice on a chosen plan: legal, but it costs something."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan


def advise(plan: Plan, sink: Sink) -> None:
    """Report everything that a reviewer should weigh."""
    _few_micro_batches(plan, sink)


def _few_micro_batches(plan: Plan, sink: Sink) -> None:
    layout, batch = plan.layout, plan.problem.job.global_batch
    count = layout.micro_batches(batch)
    if count >= layout.pp:
        return
    finding = Finding(
        message=f"{count} micro-batches leave {layout.pp - count} of {layout.pp} stages idle",
        label=f"{batch} / ({layout.micro_batch} * {layout.dp}) = {count} < {layout.pp}",
        help=f"full from a global batch of {layout.pp * layout.micro_batch * layout.dp}",
        fix=f"job.global_batch: {layout.pp * layout.micro_batch * layout.dp}",
        causes=(Cause("layout.pp", f"pp {layout.pp}"),),
    )
    sink.report("P08", finding, at="job.global_batch")
