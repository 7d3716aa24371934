"""Environment variables that Megatron itself asks for."""

from __future__ import annotations

from parc.compiler.ir import Gpu, Layout, Plan

BLACKWELL = 10
"""Compute capability from which tensor-parallel overlap needs no single hardware queue."""


def environment(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Name and value of each variable, for every rank."""
    return variables(plan.problem.cluster.gpu, plan.layout)


def variables(gpu: Gpu, layout: Layout) -> tuple[tuple[str, str], ...]:
    """``environment`` by what decides it.

    ``validate_args`` stops below Blackwell unless CUDA_DEVICE_MAX_CONNECTIONS is 1 with tp or cp
    above 1 (megatron/training/arguments.py); elsewhere 1 would only cost overlap. ROCm reports
    capability 9.x and is asked for it too.
    """
    split = layout.tp > 1 or layout.cp > 1
    if split and (gpu.vendor == "amd" or gpu.compute_capability[0] < BLACKWELL):
        return (("CUDA_DEVICE_MAX_CONNECTIONS", "1"),)
    return ()
