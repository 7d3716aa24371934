"""Family S: what the exchange of context parallelism owes to heads, windows and sinks.

Megatron's arguments say nothing of most of it: Transformer Engine refuses in the first forward
pass (attention/dot_product_attention/context_parallel.py, attn_forward_func_with_cp).
"""

from __future__ import annotations

from parc.backends.shared.valid_values import divisors, format_pin, format_values, nearest, valid
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import ContextComm, Layout, Problem
from parc.compiler.ir.rule import Rule

HIERARCHY: ContextComm = "a2a+p2p"


def _violates_context_levels(problem: Problem, layout: Layout) -> bool:
    if layout.cp == 1:
        return False
    if layout.cp_comm != HIERARCHY:
        return problem.pins.cp_a2a is not None
    inner = layout.cp_a2a
    return not (1 < inner < layout.cp and layout.cp % inner == 0)


def _explain_context_levels(problem: Problem, layout: Layout) -> Finding:
    cp, inner, comm = layout.cp, layout.cp_a2a, layout.cp_comm
    if comm != HIERARCHY:
        return Finding(
            message=f"cp_a2a is a level of cp_comm a2a+p2p, but cp_comm is {comm}",
            label=f"cp_comm {comm} has one level",
            help="legal cp_a2a: auto",
            fix="layout.cp_a2a: auto",
            causes=(Cause("layout.cp_comm", f"cp_comm {comm}"),),
        )
    swaps = problem.model.attention.swaps
    good = valid(divisors(cp), lambda value: 1 < value < cp and swaps(value, layout.tp))
    pinned = problem.pins.cp_a2a is not None
    if not pinned:
        label = f"no number of neighbours divides cp {cp} and the heads of a rank"
    elif cp % inner:
        label = f"{cp} % {inner} = {cp % inner}, must be 0"
    else:
        label = f"cp_a2a {inner} of cp {cp} leaves one level, must be above 1 and below {cp}"
    return Finding(
        message=f"cp={cp} cannot be cut into two levels" + (f" with cp_a2a {inner}" * pinned),
        label=label,
        help=f"legal cp_a2a: {format_values(good)}",
        fix=format_pin("layout.cp_a2a", nearest(good, inner)) if good else "layout.cp_comm: p2p",
        causes=(Cause("layout.cp", f"cp {cp}"),),
    )


def _swapping(layout: Layout) -> int:
    """Ranks that exchange heads for tokens."""
    return layout.cp if layout.cp_comm == "a2a" else layout.cp_a2a


def _violates_exchanged_heads(problem: Problem, layout: Layout) -> bool:
    return layout.cp > 1 and not problem.model.attention.swaps(_swapping(layout), layout.tp)


def _explain_exchanged_heads(problem: Problem, layout: Layout) -> Finding:
    attention, ranks, tp = problem.model.attention, _swapping(layout), layout.tp
    axis = "cp" if layout.cp_comm == "a2a" else "cp_a2a"
    own = {"heads": attention.heads // tp, "key-value heads": max(attention.kv_heads // tp, 1)}
    name, count = next((item for item in own.items() if item[1] % ranks), ("heads", 0))
    good = valid(divisors(own["heads"]), lambda value: attention.swaps(value, tp))
    return Finding(
        message=f"{count} {name} of a tensor rank cannot be exchanged over {axis}={ranks}",
        label=f"{count} % {ranks} = {count % ranks}, must be 0",
        help=f"legal {axis} with tp {tp}: {format_values(good)}; or cp_comm p2p",
        fix="layout.cp_comm: p2p",
        causes=(
            Cause("model.heads", f"{attention.heads} heads"),
            Cause("model.kv_heads", f"{attention.kv_heads} of keys and values"),
            Cause("layout.tp", f"tp {tp}"),
        ),
    )


def _able(problem: Problem) -> tuple[ContextComm, ...]:
    """Exchanges that the attention of the model can have; empty: all.

    Latent attention has keys wider than values, which Transformer Engine refuses elsewhere before
    its 2.16.
    """
    attention = problem.model.attention
    if attention.sinks:
        return ("a2a",)
    if attention.window is not None:
        return ("a2a", "all_gather")
    return ("p2p", HIERARCHY) if attention.latent is not None else ()


def _named(problem: Problem) -> str:
    attention = problem.model.attention
    if attention.sinks:
        return "attention sinks"
    window = attention.window
    return "latent attention" if window is None else f"a window of {window} tokens"


def _violates_exchange_kind(problem: Problem, layout: Layout) -> bool:
    able = _able(problem)
    return layout.cp > 1 and bool(able) and layout.cp_comm not in able


def _explain_exchange_kind(problem: Problem, layout: Layout) -> Finding:
    able, what = _able(problem), _named(problem)
    return Finding(
        message=f"{what} and cp_comm {layout.cp_comm} do not go together",
        label=f"cp_comm {layout.cp_comm} with {what}: the first forward pass stops",
        help=f"legal cp_comm: {', '.join(able)}; or cp 1",
        fix="layout.cp_comm: p2p" if "p2p" in able else "layout.cp: 1",
        causes=(Cause("model", f"{problem.model.name} has {what}"),),
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
)
