"""Family D: what the degrees cut must be whole."""

from __future__ import annotations

from parc.backends.legal_values import divisors, legal, listed, nearest, pin
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.rule import WORLD, Rule


def legal_tp(problem: Problem) -> list[int]:
    """Tensor degrees inside one host that cut heads and widths whole."""
    widths = [width for _, width in _widths(problem.model)]
    attention = problem.model.attention
    whole = [attention.heads, attention.kv_heads, *widths]
    return legal(divisors(problem.cluster.node.gpus), lambda tp: not any(w % tp for w in whole))


def _widths(model: Model) -> list[tuple[str, int]]:
    """(what, width) of every MLP that tp cuts."""
    found = []
    if model.ffn.size and model.moe_layers < model.layers:
        found.append(("the dense MLP", model.ffn.size))
    if model.experts is not None:
        found.append(("a routed expert", model.experts.size))
        if model.experts.shared_size:
            found.append(("the shared experts", model.experts.shared_size))
    return found


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
    good = legal_tp(problem)
    return Finding(
        message=f"{what} cannot be split over tp={tp}",
        label=f"{size} % {tp} = {size % tp}, must be 0",
        help=f"legal tp within one host: {listed(good)}",
        fix=pin("layout.tp", nearest(good, tp)),
        causes=(Cause(path, f"{size} here"),),
        targets=("deepspeed",),
    )


def _tiling_broken(problem: Problem, layout: Layout) -> bool:
    gpus, world = problem.cluster.gpus, layout.world
    if world == gpus:
        return False
    free = problem.pins.dp is not None or problem.goals.maximize == "fewest-gpus"
    return world > gpus or not free


def _tiling(problem: Problem, layout: Layout) -> Finding:
    gpus, block = problem.cluster.gpus, layout.tp * layout.cp * layout.pp
    degrees = f"tp {layout.tp} x cp {layout.cp} x pp {layout.pp}"
    if gpus % block:
        label = f"{gpus} % {block} = {gpus % block}, must be 0"
        message = f"{degrees} = {block} does not tile {gpus} GPUs"
        fix = _nearest_pp(problem, layout)
    else:
        label = f"{block} x dp {layout.dp} = {layout.world}, must be {gpus}"
        message = f"{degrees} x dp {layout.dp} needs {layout.world} GPUs, the cluster has {gpus}"
        fix = pin("layout.dp", gpus // block)
    return Finding(
        message=message,
        label=label,
        help=f"legal products of tp, cp and pp: {listed(divisors(gpus))}",
        fix=fix,
        causes=(Cause("cluster", f"{gpus} usable GPUs"),),
    )


def _nearest_pp(problem: Problem, layout: Layout) -> str:
    """The pp that tiles with the other degrees, else a tp that does."""
    gpus, rest = problem.cluster.gpus, layout.tp * layout.cp
    if gpus % rest == 0:
        return pin("layout.pp", nearest(divisors(gpus // rest), layout.pp))
    good = legal(legal_tp(problem), lambda tp: gpus % (tp * layout.cp) == 0)
    return pin("layout.tp", nearest(good, layout.tp))


TENSOR_RULES: tuple[Rule, ...] = (
    Rule("D01", ("layout.tp", "model.heads"), _heads_broken, _heads, ("tp",)),
    Rule("D02", ("layout.tp", "model.kv_heads"), _kv_broken, _kv, ("tp",)),
    Rule("D06", ("layout.tp", "model.ffn"), _width_broken, _width, ("tp",)),
    Rule(
        "D09",
        ("layout.pp", "layout.tp", "layout.cp", "layout.dp"),
        _tiling_broken,
        _tiling,
        WORLD,
    ),
)
