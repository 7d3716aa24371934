"""Rows sorted by error with the terms of the step, for work on the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import log

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.predict import estimate_step
from parc.compiler.ir import StepTime


def row_lines(cases: Sequence[Case]) -> list[str]:
    """Return one line per case, the most over-predicted first."""
    timed = [(estimate_step(case), case) for case in cases if case.scored]
    timed.sort(key=lambda pair: -log(pair[0].total_seconds / pair[1].seconds))
    return [_describe_row(time, case) for time, case in timed]


def _describe_row(time: StepTime, case: Case) -> str:
    ratio = time.total_seconds / case.seconds
    shares = " ".join(
        f"{field.name.removesuffix('_seconds')}={getattr(time, field.name) / case.seconds:.2f}"
        for field in fields(StepTime)
        if getattr(time, field.name) >= 0.005 * case.seconds
    )
    assumed = f" assumed:{','.join(case.imputed)}" if case.imputed else ""
    run, gpu = case.run, case.problem.cluster.gpu.name[:10]
    return (
        f"{ratio:5.2f} {case.seconds:8.3f}s {run.id[:44]:44} {run.gpus:5} x {gpu} {run.recipe:7} "
        f"{describe_layout(case):44} | {shares} | {run.framework} {run.overlap}{assumed}"
    )


def describe_layout(case: Case) -> str:
    """Format ``tp8 pp4 v2 dp16 mbs1 m32 full``: degrees above 1, micro-batches, recompute."""
    layout = case.layout
    degrees = (("tp", layout.tp), ("cp", layout.cp), ("pp", layout.pp), ("v", layout.vpp))
    words = [f"{name}{n}" for name, n in (*degrees, ("ep", layout.ep)) if n > 1]
    words.append(f"dp{layout.dp}")
    if case.fsdp:
        words.append(f"z{layout.zero_stage}/{layout.dp_shard}")
    words.append(f"s{case.run.sequence}")
    count = layout.micro_batches(case.problem.job.global_batch)
    return " ".join(
        (*words, f"mbs{layout.micro_batch}", f"m{count}", layout.recompute.granularity[:4])
    )
