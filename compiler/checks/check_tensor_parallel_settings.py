"""Report settings of tensor parallelism in a plan with tp 1, where they have no effect."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan


def check_tensor_parallel_settings(plan: Plan, sink: Sink) -> None:
    """Report sequence parallelism (S01) and overlapped tensor parallelism (E14) if tp is 1."""
    problem = plan.problem
    if plan.layout.tp > 1:
        return
    if problem.pins.sequence_parallel:
        finding = Finding(
            "sequence parallelism has no effect, because tp is 1",
            label="it shards activations over tensor-parallel ranks",
            help="use sequence_parallel false, or tp > 1",
            fix="layout.sequence_parallel: false",
            causes=(Cause("layout.tp", "tp 1"),),
        )
        sink.report("S01", finding, at="layout.sequence_parallel")
    if problem.job.tp_overlap:
        finding = Finding(
            "job.tp_overlap has no effect, because tp is 1",
            label="there are no tensor-parallel collectives",
            fix="remove job.tp_overlap",
            causes=(Cause("layout.tp", "tp 1"),),
        )
        sink.report("E14", finding, at="job.tp_overlap", key=True)
