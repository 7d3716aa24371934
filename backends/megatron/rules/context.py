"""Rules on the context-parallel exchange (``cp_comm``): heads, windows, sinks and GPUs.

Megatron's argument parser does not check most of these conditions; Transformer Engine fails in the
first forward pass (attention/dot_product_attention/context_parallel.py, attn_forward_func_with_cp).
"""

from __future__ import annotations

from parc.backends.megatron.programs import FUSED_ATTENTION, has_fused_attention
from parc.backends.shared.valid_values import (
    compare_capabilities,
    filter_valid,
    format_setting,
    nearest_value,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import ContextComm, Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import Rule

HIERARCHY: ContextComm = "a2a+p2p"


def _violates_context_levels(problem: Problem, layout: Layout) -> bool:
    if layout.cp == 1:
        return False
    if layout.cp_comm != HIERARCHY:
        # 1 means no groups, as plan.json prints it for every other exchange.
        return problem.pins.cp_a2a not in (None, 1)
    inner = layout.cp_a2a
    return not (1 < inner < layout.cp and layout.cp % inner == 0)


def _explain_context_levels(problem: Problem, layout: Layout) -> Finding:
    cp, inner, comm = layout.cp, layout.cp_a2a, layout.cp_comm
    if comm != HIERARCHY:
        return Finding(
            message=f"cp_a2a applies only to cp_comm a2a+p2p, but cp_comm is {comm}",
            label=f"cp_comm {comm} has a single level",
            help="valid cp_a2a: auto",
            fix="layout.cp_a2a: auto",
            causes=(Cause("layout.cp_comm", f"cp_comm {comm}"),),
        )
    swaps = problem.model.attention.can_exchange_heads
    good = filter_valid(divisors(cp), lambda value: 1 < value < cp and swaps(value, layout.tp))
    pinned = problem.pins.cp_a2a is not None
    if not pinned:
        label = f"no group size between 1 and {cp} divides both cp {cp} and the heads per rank"
    elif cp % inner:
        label = f"{cp} % {inner} = {cp % inner}, must be 0"
    else:
        label = f"cp_a2a {inner}, must be above 1 and below cp {cp}"
    return Finding(
        message=f"cp={cp} cannot be split into two levels" + (f" with cp_a2a={inner}" * pinned),
        label=label,
        help=f"valid cp_a2a: {format_values(good)}",
        fix=format_setting("layout.cp_a2a", nearest_value(good, inner))
        if good
        else "layout.cp_comm: p2p",
        causes=(Cause("layout.cp", f"cp {cp}"),),
    )


def _ranks_per_all_to_all(layout: Layout) -> int:
    """Return the number of ranks per all-to-all group, in which ranks exchange heads for tokens."""
    return layout.cp if layout.cp_comm == "a2a" else layout.cp_a2a


def _violates_exchanged_heads(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and not problem.model.attention.can_exchange_heads(
        _ranks_per_all_to_all(layout), layout.tp
    )


def _explain_exchanged_heads(problem: Problem, layout: Layout) -> Finding:
    attention, ranks, tp = problem.model.attention, _ranks_per_all_to_all(layout), layout.tp
    axis = "cp" if layout.cp_comm == "a2a" else "cp_a2a"
    # Tensor parallelism splits the heads before the exchange; with tp above the key-value heads,
    # one copy is left per rank.
    own = {"heads": attention.heads // tp, "key-value heads": max(attention.kv_heads // tp, 1)}
    name, count = next((item for item in own.items() if item[1] % ranks), ("heads", 0))
    good = filter_valid(
        divisors(own["heads"]), lambda value: attention.can_exchange_heads(value, tp)
    )
    return Finding(
        message=f"{count} {name} per tensor rank are not divisible by {axis}={ranks}",
        label=f"{count} % {ranks} = {count % ranks}, must be 0",
        help=f"valid {axis} with tp {tp}: {format_values(good)}; or use cp_comm p2p",
        fix="layout.cp_comm: p2p",
        causes=(
            Cause("model.heads", f"{attention.heads} heads"),
            Cause("model.kv_heads", f"{attention.kv_heads} key-value heads"),
            Cause("layout.tp", f"tp {tp}"),
        ),
    )


def _supported_cp_comm(problem: Problem) -> tuple[ContextComm, ...]:
    """Return the values of ``cp_comm`` that the model's attention supports; () means all values.

    In latent attention, keys are wider than values. Before Transformer Engine 2.16, only ring
    exchanges support such keys.
    """
    attention = problem.model.attention
    if attention.sinks:
        return ("a2a",)
    if attention.window is not None:
        return ("a2a", "all_gather")
    return ("p2p", HIERARCHY) if attention.latent is not None else ()


def _feature_restricting_cp_comm(problem: Problem) -> str:
    """Return the attention feature that restricts ``cp_comm``, such as "attention sinks"."""
    attention = problem.model.attention
    if attention.sinks:
        return "attention sinks"
    window = attention.window
    return "latent attention" if window is None else f"a window of {window} tokens"


def _violates_exchange_kind(problem: Problem, layout: Layout) -> bool:
    supported = _supported_cp_comm(problem)
    return layout.cp > 1 and bool(supported) and layout.cp_comm not in supported


def _explain_exchange_kind(problem: Problem, layout: Layout) -> Finding:
    supported, what = _supported_cp_comm(problem), _feature_restricting_cp_comm(problem)
    return Finding(
        message=f"cp_comm {layout.cp_comm} does not support {what}",
        label=f"cp_comm {layout.cp_comm} with {what} fails in the first forward pass",
        help=f"valid cp_comm: {', '.join(supported)}; or use cp 1",
        fix="layout.cp_comm: p2p" if "p2p" in supported else "layout.cp: 1",
        causes=(Cause("model", f"{problem.model.name} has {what}"),),
    )


def _violates_fused_attention(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and not has_fused_attention(problem)


def _explain_fused_attention(problem: Problem, layout: Layout) -> Finding:
    gpu = problem.cluster.gpu
    return Finding(
        message=f"context parallelism requires fused attention, which {gpu.name} does not support",
        label=f"cp {layout.cp} fails in the first forward pass",
        help="use cp 1; tp with sequence_parallel also divides the activations",
        fix="layout.cp: 1",
        causes=(
            Cause(
                "cluster",
                compare_capabilities(gpu.compute_capability, FUSED_ATTENTION),
            ),
        ),
    )


_EXCHANGE = ("cp", "cp_comm", "cp_a2a")

CONTEXT_RULES: tuple[Rule, ...] = (
    Rule(
        "S06",
        ("layout.cp_a2a", "layout.cp_comm"),
        _violates_context_levels,
        _explain_context_levels,
        _EXCHANGE,
    ),
    Rule(
        "S07",
        ("layout.cp", "layout.cp_comm"),
        _violates_exchanged_heads,
        _explain_exchanged_heads,
        ("tp", *_EXCHANGE),
    ),
    Rule(
        "S17",
        ("layout.cp", "layout.cp_comm", "model"),
        _violates_exchange_kind,
        _explain_exchange_kind,
        _EXCHANGE,
    ),
    Rule(
        "S18",
        ("layout.cp", "cluster"),
        _violates_fused_attention,
        _explain_fused_attention,
        ("cp",),
    ),
)
