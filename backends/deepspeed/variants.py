"""ZeRO stages, offload and recomputation that the search tries with DeepSpeed."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.variants import apply_pins
from parc.compiler.ir import NO_OFFLOAD, NO_RECOMPUTE, LayoutVariant, Problem, Recompute

_CPU = replace(NO_OFFLOAD, optimizer="cpu")
_ALL_CPU = replace(_CPU, parameters="cpu")
# ZeRO-0 is not tried, because ZeRO-1 communicates as many bytes per step and stores less.
STAGES = tuple(LayoutVariant(zero_stage=stage, cp_comm="a2a") for stage in (1, 2, 3))
LAST_RESORTS = (
    LayoutVariant(zero_stage=1, cp_comm="a2a", offload=_CPU, last_resort=True),
    LayoutVariant(zero_stage=2, cp_comm="a2a", offload=_CPU, last_resort=True),
    LayoutVariant(zero_stage=3, cp_comm="a2a", offload=_CPU, last_resort=True),
    LayoutVariant(zero_stage=3, cp_comm="a2a", offload=_ALL_CPU, last_resort=True),
)
"""Variants with offload, tried only if no layout fits with all state in GPU memory."""


def deepspeed_variants(problem: Problem) -> tuple[LayoutVariant, ...]:
    """Return the variants with ZeRO stages 1 to 3, then those that also offload to host memory.

    The variants with offload are left out if the spec sets ``layout.offload``.
    """
    offered = STAGES if problem.pins.offload is not None else STAGES + LAST_RESORTS
    return apply_pins(problem, offered)


def deepspeed_recompute_settings(problem: Problem) -> tuple[Recompute, ...]:
    """Return the two recompute settings of DeepSpeed: no layer and all layers.

    DeepSpeed cannot recompute selected modules.
    """
    # Blocks of several layers exist only in pipelines; they are used only if the spec sets them.
    return (NO_RECOMPUTE, Recompute("full", (), "uniform", 1))
