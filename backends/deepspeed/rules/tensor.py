"""Family D: what the degrees cut must be whole."""

from __future__ import annotations

from parc.backends.shared.plain_rules import gpu_count_rule
from parc.backends.shared.valid_degrees import mixer_head_counts
from parc.backends.shared.valid_values import divisors, format_pin, format_values, nearest, valid
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.rule import Rule


def valid_tp(problem: Problem) -> list[int]:
    """Tensor degrees inside one host that cut heads and widths whole."""
    widths = [width for _, width in _widths(problem.model)]
    attention = problem.model.attention
    whole = [attention.heads, attention.kv_heads, *widths]
    return valid(divisors(problem.cluster.node.gpus), lambda tp: not any(w % tp for w in whole))


def _widths(model: Model) -> list[tuple[str, int]]:
    """(what, width) of every MLP that tp cuts."""
    found = []
    if model.ffn.size and model.dense_layers:
        found.append(("the dense MLP", model.ffn.size))
    if model.experts is not None:
        found.append(("a routed expert", model.experts.size))
        if model.experts.shared_size:
            found.append(("the shared experts", model.experts.shared_size))
    return [*found, *mixer_head_counts(model)]


def _heads_broken(problem: Problem, layout: Layout) -> bool:
    return problem.model.attention.heads % layout.tp != 0


def _heads(problem: Problem, layout: Layout) -> Finding:
    heads, tp = problem.model.attention.heads, layout.tp
    return _cut(problem, f"{heads} attention heads", heads, ("model.heads", tp))


def _kv_broken(problem: Problem, layout: Layout) -> bool:
    return problem.model.attention.kv_heads % layout.tp != 0


def _kv(problem: Problem, layout: Layout) -> Finding:
    kv, tp = problem.model.attention.kv_heads, layout.tp
    return _cut(problem, f"{kv} key-value heads", kv, ("model.kv_heads", tp))


def _width_broken(problem: Problem, layout: Layout) -> bool:
    return any(width % layout.tp for _, width in _widths(problem.model))


def _width(problem: Problem, layout: Layout) -> Finding:
    what, width = next(row for row in _widths(problem.model) if row[1] % layout.tp)
    return _cut(problem, f"the width of {what}, {width},", width, ("model", layout.tp))


def _cut(problem: Problem, what: str, size: int, cut: tuple[str, int]) -> Finding:
    """``size`` over tp; ``cut`` is (spec path of the size, tp)."""
    path, tp = cut
    good = valid_tp(problem)
    return Finding(
        message=f"{what} cannot be split over tp={tp}",
        label=f"{size} % {tp} = {size % tp}, must be 0",
        help=f"legal tp within one host: {format_values(good)}",
        fix=format_pin("layout.tp", nearest(good, tp)),
        causes=(Cause(path, f"{size} here"),),
        targets=("deepspeed",),
    )


TENSOR_RULES: tuple[Rule, ...] = (
    Rule("D01", ("layout.tp", "model.heads"), _heads_broken, _heads, ("tp",)),
    Rule("D02", ("layout.tp", "model.kv_heads"), _kv_broken, _kv, ("tp",)),
    Rule("D06", ("layout.tp", "model.ffn"), _width_broken, _width, ("tp",)),
    gpu_count_rule(valid_tp),
)
