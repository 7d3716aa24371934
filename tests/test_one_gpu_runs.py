"""Predictions against steps of torchtitan that were measured on one GPU."""

from __future__ import annotations

from functools import cache
from statistics import mean

import pytest

from benchmarks.accuracy.one_gpu import OneGpuRun, read_one_gpu_runs


@cache
def runs() -> dict[str, OneGpuRun]:
    return {run.name: run for run in read_one_gpu_runs()}


@pytest.mark.parametrize(
    ("quantity", "largest_mean"),
    [("attention_error", 0.08), ("kernel_error", 0.08), ("step_error", 0.09)],
)
def test_kernels_on_one_gpu_take_their_time_in_a_benchmark(
    quantity: str, largest_mean: float
) -> None:
    errors = [getattr(run, quantity) for run in runs().values()]
    assert len(errors) == 15
    assert mean(map(abs, errors)) <= largest_mean


def test_scales_per_row_cost_casts() -> None:
    row, tensor = runs()["8b-fp8-row-op-8k-2"], runs()["8b-fp8-tensor-op-8k-2"]
    measured = row.step_seconds - tensor.step_seconds
    predicted = row.estimate.total_seconds - tensor.estimate.total_seconds
    assert predicted == pytest.approx(measured, rel=0.5)
