"""Restriction of a framework's data-parallel and context-parallel variants to the spec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from parc.compiler.ir import LayoutVariant, Problem


def apply_pins(problem: Problem, offered: Iterable[LayoutVariant]) -> tuple[LayoutVariant, ...]:
    """Return the layout variants in ``offered``, changed to the values that the spec sets.

    Duplicates are removed. A value of the spec is set even if the framework does not support it, so
    that the framework's rules can report the reason.
    """
    pins = problem.pins
    written = {
        name: getattr(pins, name)
        for name in (
            *("zero_stage", "dp_shard", "schedule", "cp_comm", "offload", "zero_plus"),
            *("cuda_graphs", "gtp", "egtp"),
        )
        if getattr(pins, name) is not None
    }
    if "cuda_graphs" in written:
        written["refines"] = False
    if pins.cp_a2a not in (None, 1):
        # Groups are only relevant for this communication, so that setting them implies the choice.
        written.setdefault("cp_comm", "a2a+p2p")
    return tuple(dict.fromkeys(replace(variant, **written) for variant in offered))
