"""Rules on tensor (D18) and context parallelism (S17) of linear attention and Mamba layers.

Tensor ranks split heads and groups; context ranks exchange tokens for heads before the scan.
Source: megatron/core/transformer/transformer_config.py, __post_init__; ssm/mamba_mixer.py;
ssm/mamba_context_parallel.py.
"""

from __future__ import annotations

from typing import NamedTuple

from parc.backends.megatron.capabilities import core_version
from parc.backends.shared.valid_degrees import MAMBA_GROUPS, mixer_head_counts, valid_tp
from parc.backends.shared.valid_values import filter_valid, format_setting, nearest_value
from parc.backends.shared.versions import parse_version
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import Rule

LINEAR_CONTEXT_SINCE = (0, 18)


class _IndivisibleHeads(NamedTuple):
    """Type of heads whose number is not divisible by the number of ranks that share the heads."""

    what: str
    heads: int
    ranks: int


def _indivisible_heads(problem: Problem, tp: int, cp: int) -> _IndivisibleHeads | None:
    """Return the first type of heads that the ranks cannot share equally; None if there is none."""
    groups = problem.model.mamba.groups if problem.model.mamba else 0
    for what, count in mixer_head_counts(problem.model):
        # Megatron copies groups if a tensor rank has fewer groups than there are context ranks.
        ranks = tp if what == MAMBA_GROUPS else tp * cp
        if count % ranks:
            return _IndivisibleHeads(what, count, ranks)
    # Context ranks divide the groups of a tensor rank or copy them; both need a whole ratio.
    own = groups // tp
    if own and own % cp and cp % own:
        return _IndivisibleHeads(MAMBA_GROUPS, groups, tp * cp)
    return None


def _violates_mixer_heads(problem: Problem, layout: Layout) -> bool:
    return _indivisible_heads(problem, layout.tp, layout.cp) is not None


def _explain_mixer_heads(problem: Problem, layout: Layout) -> Finding:
    tp, cp = layout.tp, layout.cp
    what, count, ranks = _indivisible_heads(problem, tp, cp) or _IndivisibleHeads(
        "heads", 1, tp * cp
    )
    good_tp = [n for n in valid_tp(problem) if _indivisible_heads(problem, n, cp) is None]
    most = max(heads for _, heads in mixer_head_counts(problem.model))
    good_cp = filter_valid(divisors(most), lambda n: _indivisible_heads(problem, tp, n) is None)
    fix_tp = ranks == tp or not good_cp
    axes = "tp" if ranks == tp else "tp x cp"
    return Finding(
        message=f"{count} {what} are not divisible by {axes} = {ranks}",
        label=f"{count} % {ranks} = {count % ranks}, must be 0",
        help=f"valid tp with cp {cp}: {format_values(good_tp)}; "
        f"valid cp with tp {tp}: {format_values(good_cp)}",
        fix=format_setting("layout.tp", nearest_value(good_tp or [1], tp))
        if fix_tp
        else format_setting("layout.cp", nearest_value(good_cp, cp)),
        causes=(Cause("model", f"{count} {what}"),),
    )


def _violates_linear_context(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1


def _explain_linear_context(problem: Problem, layout: Layout) -> Finding:
    version = core_version(problem)
    return Finding(
        message=f"Megatron-LM {version} does not support context parallel linear attention",
        label=f"cp is {layout.cp}, must be 1 with Megatron-LM before 0.18",
        help="use cp 1, or Megatron-LM 0.18 or later",
        fix="layout.cp: 1",
        causes=(Cause("model", f"{problem.model.name} has linear attention"),),
    )


def mixer_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules about linear attention and Mamba layers; empty for models without them."""
    if not mixer_head_counts(problem.model):
        return ()
    rules = [
        Rule(
            "D18",
            ("layout.cp", "layout.tp", "model"),
            _violates_mixer_heads,
            _explain_mixer_heads,
            ("tp", "cp"),
        )
    ]
    old = parse_version(core_version(problem)) < LINEAR_CONTEXT_SINCE
    if problem.model.linear is not None and old:
        rules.append(
            Rule(
                "S17",
                ("layout.cp", "model"),
                _violates_linear_context,
                _explain_linear_context,
                ("cp",),
            )
        )
    return tuple(rules)
