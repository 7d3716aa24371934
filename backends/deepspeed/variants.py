"""What DeepSpeed offers beside degrees: ZeRO stages; the host's memory only where nothing fits."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.variants import apply_pins
from parc.compiler.ir import NO_OFFLOAD, NO_RECOMPUTE, Problem, Recompute, Variant

_CPU = replace(NO_OFFLOAD, optimizer="cpu")
_ALL_CPU = replace(_CPU, parameters="cpu")
STAGES = tuple(Variant(zero_stage=stage, cp_comm="a2a") for stage in (1, 2, 3))
LAST_RESORTS = (
    Variant(zero_stage=1, cp_comm="a2a", offload=_CPU, last_resort=True),
    Variant(zero_stage=2, cp_comm="a2a", offload=_CPU, last_resort=True),
    Variant(zero_stage=3, cp_comm="a2a", offload=_CPU, last_resort=True),
    Variant(zero_stage=3, cp_comm="a2a", offload=_ALL_CPU, last_resort=True),
)
"""Looked at only where no layout fits that keeps its state in the GPUs."""


def variants(problem: Problem) -> tuple[Variant, ...]:
    """ZeRO-1, 2 and 3; then the same with the host's memory, unless ``offload`` is pinned."""
    offered = STAGES if problem.pins.offload is not None else STAGES + LAST_RESORTS
    return apply_pins(problem, offered)


def recomputes(problem: Problem) -> tuple[Recompute, ...]:
    """Nothing, or every layer; DeepSpeed has no list of modules."""
    return (NO_RECOMPUTE, Recompute("full", (), "uniform", 1))
