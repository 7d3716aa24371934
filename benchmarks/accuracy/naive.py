"""Naive baseline formula: FLOPs divided by a constant rate, plus the pipeline bubble.

    T = F (1 + r/3) (1 + (p - 1) / (m v)) / (N c)

F is the model FLOPs per step, r = 1 with full recompute and 0 otherwise, N the number of GPUs. The
rate c (FLOP/s per GPU) is the median of the group GPU x precision x dense or MoE. If a group has no
rows, c is a share of peak instead: the median over the same GPU, then over the same model type,
then over all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.accuracy.cases import Case


def work_flops(case: Case) -> float:
    """Return the FLOPs per GPU, increased by recompute and bubble."""
    layout, job = case.layout, case.problem.job
    recompute = 4 / 3 if layout.recompute.granularity == "full" else 1.0
    count = layout.micro_batches(job.global_batch)
    bubble = 1 + (layout.pp - 1) / (count * layout.vpp)
    return case.flops * recompute * bubble / case.run.gpus


def peak_flops(case: Case) -> float:
    """Return the data-sheet FLOP/s at the precision of the run; in bf16 if the GPU lacks it."""
    gpu = case.problem.cluster.gpu
    peak = (
        gpu.peak_rate(case.run.precision) or gpu.peak_rate("bf16") or gpu.peak_rate("fp16") or 1.0
    )
    return peak * 1e12


def naive_seconds(measured: Sequence[Case], targets: Sequence[Case]) -> list[float]:
    """Return the naive step times of ``targets``, with rates from the cases ``measured``."""
    rates: dict[tuple[str, ...], list[float]] = {}
    for case in measured:
        rate = work_flops(case) / case.seconds
        rates.setdefault((case.group,), []).append(rate)
        for key in _fallback_groups(case):
            rates.setdefault(key, []).append(rate / peak_flops(case))
    constants = {key: median(values) for key, values in rates.items()}
    return [work_flops(case) / _constant(constants, case) for case in targets]


def _fallback_groups(case: Case) -> tuple[tuple[str, ...], ...]:
    return (("gpu", case.problem.cluster.gpu.name), ("kind", case.kind), ("all",))


def _constant(constants: dict[tuple[str, ...], float], case: Case) -> float:
    own = constants.get((case.group,))
    if own is not None:
        return own
    share = next(constants[key] for key in _fallback_groups(case) if key in constants)
    return share * peak_flops(case)
