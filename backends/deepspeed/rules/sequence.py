"""Rules on Ulysses: cp must divide the sequence length (S04) and the number of heads (S07)."""

from __future__ import annotations

from parc.backends.shared.valid_degrees import MAMBA_GROUPS, mixer_head_counts
from parc.backends.shared.valid_values import (
    filter_valid,
    format_setting,
    nearest_multiples,
    nearest_value,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import Rule


def _valid_cp_sizes(problem: Problem) -> list[int]:
    return filter_valid(
        divisors(problem.model.attention.heads),
        lambda cp: not _explain_uneven_heads(problem.model, cp),
    )


def _splits_kv_heads_unevenly(kv_heads: int, cp: int) -> bool:
    return kv_heads % cp != 0 and cp % kv_heads != 0


def _explain_uneven_heads(model: Model, cp: int) -> str:
    """Return a formula, such as ``6 % 4 = 2, must be 0``, if ``cp`` does not divide the heads.

    Return "" if ``cp`` divides the heads.
    """
    heads, kv = model.attention.heads, model.attention.kv_heads
    # MAMBA_GROUPS are left out because a program may copy them to the ranks.
    mixers = [count for what, count in mixer_head_counts(model) if what != MAMBA_GROUPS]
    for count in (heads, *mixers):
        if count % cp:
            return f"{count} % {cp} = {count % cp}, must be 0"
    if _splits_kv_heads_unevenly(kv, cp):
        return f"{kv} % {cp} = {kv % cp} and {cp} % {kv} = {cp % kv}, one must be 0"
    return ""


def _violates_head_exchange(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and bool(_explain_uneven_heads(problem.model, layout.cp))


def _explain_head_exchange(problem: Problem, layout: Layout) -> Finding:
    attention, cp = problem.model.attention, layout.cp
    heads, kv = attention.heads, attention.kv_heads
    good = _valid_cp_sizes(problem)
    return Finding(
        message=f"{heads} attention heads and {kv} key-value heads cannot be split over cp={cp}",
        label=_explain_uneven_heads(problem.model, cp),
        help=f"valid cp: {format_values(good)}",
        fix=format_setting("layout.cp", nearest_value(good, cp)),
        causes=(
            Cause("model.heads", f"{heads} heads"),
            Cause("model.kv_heads", f"{kv} key-value heads"),
        ),
        targets=("deepspeed",),
    )


def _violates_sequence_length(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and problem.job.sequence_length % layout.cp != 0


def _explain_sequence_length(problem: Problem, layout: Layout) -> Finding:
    length, cp = problem.job.sequence_length, layout.cp
    below, above = nearest_multiples(length, cp)
    return Finding(
        message=f"a sequence of {length} tokens cannot be split over cp={cp}",
        label=f"{length} % {cp} = {length % cp}, must be 0",
        help=f"nearest valid sequence lengths: {below}, {above}",
        fix=format_setting("job.sequence_length", above),
        causes=(Cause("job.sequence_length", f"{length} tokens"),),
    )


SEQUENCE_RULES: tuple[Rule, ...] = (
    Rule(
        "S07",
        ("layout.cp", "model.heads"),
        _violates_head_exchange,
        _explain_head_exchange,
        ("cp",),
    ),
    Rule(
        "S04",
        ("layout.cp", "job.sequence_length"),
        _violates_sequence_length,
        _explain_sequence_length,
        ("cp",),
    ),
)
