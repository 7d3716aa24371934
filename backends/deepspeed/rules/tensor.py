"""Rules on tensor parallelism: tp must divide all heads and widths, and fit the GPU count."""

from __future__ import annotations

from parc.backends.shared.common_rules import gpu_count_rule
from parc.backends.shared.valid_degrees import mixer_head_counts
from parc.backends.shared.valid_values import filter_valid, format_setting, nearest_value
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import describe_indivisible, format_values
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import Rule


def valid_tp_sizes(problem: Problem) -> list[int]:
    """Return the values of tp that divide all head counts, all widths and the GPUs of a host."""
    widths = [width for _, width in _tensor_parallel_widths(problem.model)]
    attention = problem.model.attention
    # Unlike Megatron, DeepSpeed makes no copies of key-value heads, so tp must divide their number.
    whole = [attention.heads, attention.kv_heads, *widths]
    return filter_valid(
        divisors(problem.cluster.node.gpus), lambda tp: not any(w % tp for w in whole)
    )


def _tensor_parallel_widths(model: Model) -> list[tuple[str, int]]:
    """Return (name, width) of each MLP and token mixer that tensor parallelism splits."""
    found = []
    if model.ffn.size and model.dense_layers:
        found.append(("the dense MLP", model.ffn.size))
    if model.experts is not None:
        found.append(("a routed expert", model.experts.size))
        if model.experts.shared_size:
            found.append(("the shared experts", model.experts.shared_size))
    return [*found, *mixer_head_counts(model)]


def _violates_heads(problem: Problem, layout: Layout) -> bool:
    return problem.model.attention.heads % layout.tp != 0


def _explain_heads(problem: Problem, layout: Layout) -> Finding:
    heads, tp = problem.model.attention.heads, layout.tp
    return _explain_indivisible_size(problem, "attention heads", heads, ("model.heads", tp))


def _violates_kv_heads(problem: Problem, layout: Layout) -> bool:
    return problem.model.attention.kv_heads % layout.tp != 0


def _explain_kv_heads(problem: Problem, layout: Layout) -> Finding:
    kv, tp = problem.model.attention.kv_heads, layout.tp
    return _explain_indivisible_size(problem, "key-value heads", kv, ("model.kv_heads", tp))


def _violates_widths(problem: Problem, layout: Layout) -> bool:
    return any(width % layout.tp for _, width in _tensor_parallel_widths(problem.model))


def _explain_widths(problem: Problem, layout: Layout) -> Finding:
    what, width = next(row for row in _tensor_parallel_widths(problem.model) if row[1] % layout.tp)
    return _explain_indivisible_size(problem, what, width, ("model", layout.tp))


def _explain_indivisible_size(
    problem: Problem, what: str, size: int, path_and_tp: tuple[str, int]
) -> Finding:
    """Return the finding: ``size`` is not divisible by tp.

    ``what`` describes the size; ``path_and_tp`` is (spec path of the size, tp).
    """
    path, tp = path_and_tp
    good = valid_tp_sizes(problem)
    return Finding(
        message=describe_indivisible(size, what, f"tp={tp}"),
        label=f"{size} % {tp} = {size % tp}, must be 0",
        help=f"valid tp within one host: {format_values(good)}",
        fix=format_setting("layout.tp", nearest_value(good, tp)),
        causes=(Cause(path, f"{what}: {size}"),),
        targets=("deepspeed",),
    )


TENSOR_RULES: tuple[Rule, ...] = (
    Rule("D01", ("layout.tp", "model.heads"), _violates_heads, _explain_heads, ("tp",)),
    Rule("D02", ("layout.tp", "model.kv_heads"), _violates_kv_heads, _explain_kv_heads, ("tp",)),
    Rule("D06", ("layout.tp", "model.ffn"), _violates_widths, _explain_widths, ("tp",)),
    gpu_count_rule(valid_tp_sizes),
)
