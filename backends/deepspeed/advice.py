"""Advice on DeepSpeed plans that are valid but waste time."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan


def report_advice(plan: Plan, sink: Sink) -> None:
    """Report a pipeline with fewer micro-batches than stages, so that stages are idle (P08)."""
    layout, batch = plan.layout, plan.problem.job.global_batch
    count = layout.micro_batches(batch)
    # Every micro-batch is in one stage at a time, so fewer micro-batches than stages leave stages
    # idle.
    if count >= layout.pp:
        return
    finding = Finding(
        message=f"{count} micro-batches leave {layout.pp - count} of {layout.pp} stages idle "
        "at any time",
        label=f"global batch {batch} / (micro-batch {layout.micro_batch} x dp {layout.dp}) "
        f"= {count}, less than pp {layout.pp}",
        help=f"a global batch of {layout.pp * layout.micro_batch * layout.dp} or more fills all "
        "stages",
        fix=f"job.global_batch: {layout.pp * layout.micro_batch * layout.dp}",
        causes=(Cause("layout.pp", f"pp {layout.pp}"),),
    )
    sink.report("P08", finding, at="job.global_batch")
