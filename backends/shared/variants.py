"""Data-parallel and context-parallel variants of a framework, restricted to the pins of a spec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from parc.compiler.ir import Problem, Variant


def apply_pins(problem: Problem, offered: Iterable[Variant]) -> tuple[Variant, ...]:
    """Return ``offered`` with the fields that the spec pins replaced, without duplicates.

    A pin applies to every variant, also if the framework cannot express the result: its rules
    then reject the variant with a diagnostic. Leaving it out here would hide the reason.
    """
    pins = problem.pins
    written = {
        name: getattr(pins, name)
        for name in ("zero_stage", "dp_shard", "schedule", "cp_comm", "offload", "zero_plus")
        if getattr(pins, name) is not None
    }
    if pins.cp_a2a is not None:
        written.setdefault("cp_comm", "a2a+p2p")
    return tuple(dict.fromkeys(replace(variant, **written) for variant in offered))
