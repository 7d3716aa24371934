"""The variants that a framework offers, with the pins of a spec put in their places."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from parc.compiler.ir import Problem, Variant


def pinned(problem: Problem, offered: Iterable[Variant]) -> tuple[Variant, ...]:
    """``offered`` as the pins change them, each once, in their order.

    A pin holds for every variant, legal or not: what a framework cannot express is for its rules
    to refuse, not to vanish here.
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
