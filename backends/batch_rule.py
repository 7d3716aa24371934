"""B01, for every framework: the global batch is a whole number of micro-batches a replica."""

from __future__ import annotations

from parc.backends.legal_values import around, divisors, legal, listed, pin
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

DP = ("dp_replicate", "dp_shard")
"""What ``Layout.dp`` is made of."""


def _batch_broken(problem: Problem, layout: Layout) -> bool:
    step = layout.micro_batch * layout.dp
    return problem.job.global_batch % step != 0


def _batch(problem: Problem, layout: Layout) -> Finding:
    batch, micro, dp = problem.job.global_batch, layout.micro_batch, layout.dp
    step = micro * dp
    below, above = around(batch, step)
    good = legal(divisors(batch), lambda value: batch % (value * dp) == 0)
    return Finding(
        message=f"a global batch of {batch} cannot be cut into {micro} sequences on {dp} replicas",
        label=f"{batch} % ({micro} * {dp}) = {batch % step}, must be 0",
        help=f"nearest legal global batches: {listed(sorted({below, above}))}; "
        f"legal micro-batches at dp {dp}: {listed(good)}",
        fix=pin("job.global_batch", above),
        causes=(Cause("job.global_batch", f"{batch} sequences"), Cause("layout.dp", f"dp {dp}")),
    )


BATCH_RULE = Rule(
    "B01",
    ("job.global_batch", "layout.micro_batch", "layout.dp"),
    _batch_broken,
    _batch,
    ("micro_batch", *DP),
)
