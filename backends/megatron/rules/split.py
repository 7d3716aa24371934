"""Rules on stages that the spec sets: one rule per reason why no split of the layers matches.

If the spec sets pp or vpp and no split exists, the search evaluates a placeholder split, which
these rules reject.
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
"""(code, spec fields to point at) of every reason that ``why_no_split`` returns. P06 is missing,
because it is a separate rule."""


def split_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return one rule for each possible reason that no split of the layers satisfies the spec.

    There are no rules if the spec sets neither pp, nor vpp, nor the layers of a stage. The search
    then finds only valid splits.
    """
    pins = problem.pins
    if pins.pp is None and pins.vpp is None and SplitPins.from_pins(pins).is_unrestricted:
        return ()

    # The search evaluates the rules thousands of times, always for `problem`.
    @cache
    def cached_code(pp: int, vpp: int) -> str:
        return _code_of_reason(problem, pp, vpp)

    def code_of(evaluated: Problem, layout: Layout) -> str:
        pp, vpp = layout.pp, layout.vpp
        return cached_code(pp, vpp) if evaluated is problem else _code_of_reason(evaluated, pp, vpp)

    # One rule per code, so that each finding points at the pins that cause it.
    return tuple(_rule_for_code(code, fields, code_of) for code, fields in REASONS)


def _code_of_reason(problem: Problem, pp: int, vpp: int) -> str:
    """Return the diagnostic code that explains why no split exists; "" if a split exists."""
    split = find_split(problem, pp, vpp)
    return why_no_split(problem, pp, vpp).code if split is None else ""


def _rule_for_code(
    code: str, fields: tuple[str, ...], code_of: Callable[[Problem, Layout], str]
) -> Rule:
    """Return the rule ``code``, which a layout violates if ``code_of`` returns this code."""

    def has_this_code(problem: Problem, layout: Layout) -> bool:
        return code_of(problem, layout) == code

    def explain_split(problem: Problem, layout: Layout) -> Finding:
        return why_no_split(problem, layout.pp, layout.vpp).finding

    return Rule(code, fields, has_this_code, explain_split, ("pp", "vpp"))
