"""The pins leave no split of the layers: one rule for each reason.

The search puts a stand-in where a pinned grid has no split; these rules refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from parc.backends.megatron.stages.split import SplitPins, find_split
from parc.backends.megatron.stages.why_no_split import why_no_split
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

PINS = (
    "layout.pipeline_layout",
    "layout.first_stage_layers",
    "layout.last_stage_layers",
    "layout.count_embedding",
    "layout.count_loss",
)
REASONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("P05", PINS),
    ("P03", PINS),
    ("P19", ("layout.pipeline_layout",)),
    ("P04", ("layout.first_stage_layers", "layout.last_stage_layers")),
    ("P01", ("layout.count_embedding", "layout.count_loss")),
    ("P02", ("layout.vpp", "layout.pp")),
)
"""Codes that ``why_no_split`` gives, with the pins to point at; P06 is a rule of its own."""


def split_rules(problem: Problem) -> tuple[Rule, ...]:
    """None where nothing about stages is pinned: then only real splits are enumerated."""
    pins = problem.pins
    if pins.pp is None and pins.vpp is None and SplitPins.of(pins).free:
        return ()

    @cache
    def own_reason(pp: int, vpp: int) -> str:
        return _reason(problem, pp, vpp)

    def reason(asked: Problem, layout: Layout) -> str:
        """A search asks thousands of times, and always about ``problem``."""
        pp, vpp = layout.pp, layout.vpp
        return own_reason(pp, vpp) if asked is problem else _reason(asked, pp, vpp)

    return tuple(_rule(code, fields, reason) for code, fields in REASONS)


def _reason(problem: Problem, pp: int, vpp: int) -> str:
    """Code that says why there is no split; empty where there is one."""
    split = find_split(problem, pp, vpp)
    return why_no_split(problem, pp, vpp)[0] if split is None else ""


def _rule(code: str, fields: tuple[str, ...], reason: Callable[[Problem, Layout], str]) -> Rule:
    """Broken where there is no split, and for this reason."""

    def broken(problem: Problem, layout: Layout) -> bool:
        return reason(problem, layout) == code

    def explain(problem: Problem, layout: Layout) -> Finding:
        return why_no_split(problem, layout.pp, layout.vpp)[2]

    return Rule(code, fields, broken, explain, ("pp", "vpp"))
