"""Family E: strategies that DeepSpeed has, and does not have together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parc.backends.deepspeed.derived_config import uses_autotp
from parc.backends.deepspeed.meshes import ORDER
from parc.backends.deepspeed.versions import DEFAULT
from parc.backends.shared.versions import is_in_range
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule

AUTOTP_SINCE = "0.17"
"""AutoTP for training came with a patch of 0.16."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two strategies that exclude each other."""

    first: str
    """Field of the layout, above 1."""
    second: str
    words: tuple[str, str]
    why: str


PAIRS: tuple[Pair, ...] = (
    Pair("cp", "tp", ("Ulysses (cp)", "tensor parallelism"),
         "DeepSpeed accepts both and builds the groups of one"),
    Pair("cp", "pp", ("Ulysses (cp)", "a pipeline"), "the topology has no axis for sequences"),
)  # fmt: skip


def _pair_broken(pair: Pair) -> Callable[[Problem, Layout], bool]:
    def broken(problem: Problem, layout: Layout) -> bool:
        return bool(getattr(layout, pair.first) > 1 and getattr(layout, pair.second) > 1)

    return broken


def _pair_explained(pair: Pair) -> Callable[[Problem, Layout], Finding]:
    def explain(problem: Problem, layout: Layout) -> Finding:
        one, other = getattr(layout, pair.first), getattr(layout, pair.second)
        return Finding(
            message=f"deepspeed does not combine {pair.words[0]} and {pair.words[1]}",
            label=f"{pair.first} {one} with {pair.second} {other}: {pair.why}",
            help=f"legal: {pair.first} 1, or {pair.second} 1",
            fix=f"layout.{pair.second}: 1",
            targets=("deepspeed",),
        )

    return explain


def _experts_broken(problem: Problem, layout: Layout) -> bool:
    return problem.model.experts is not None and layout.cp > 1


def _experts(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="deepspeed does not combine Ulysses (cp) and experts",
        label=f"cp {layout.cp} with experts: their groups would cross those of the sequences",
        help="legal cp for a model with experts: 1",
        fix="layout.cp: 1",
        targets=("deepspeed",),
    )


def _order_broken(problem: Problem, layout: Layout) -> bool:
    return layout.order != ORDER


def _order(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"deepspeed has no rank order {layout.order}",
        label=f"must be {ORDER}: pipe, data, model",
        help=f"legal order: {ORDER}",
        fix="remove layout.order",
        targets=("deepspeed",),
    )


def _autotp_broken(problem: Problem, layout: Layout) -> bool:
    version = problem.version("deepspeed")
    return uses_autotp(problem, layout) and not is_in_range(version, AUTOTP_SINCE, None)


def _autotp(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"deepspeed {problem.version('deepspeed')} has no tensor parallelism of its own",
        label=f"tp {layout.tp}: tensor_parallel.autotp_size came later",
        help=f"legal: tp 1, or deepspeed {AUTOTP_SINCE} and later",
        fix=f'versions.deepspeed: "{DEFAULT}"',
        targets=("deepspeed",),
    )


def _block_broken(problem: Problem, layout: Layout) -> bool:
    again = layout.recompute
    return again.method == "block" or (layout.pp == 1 and (again.layers or 1) > 1)


def _block(problem: Problem, layout: Layout) -> Finding:
    again = layout.recompute
    return Finding(
        message="deepspeed recomputes every layer, or none",
        label=f"method {again.method}, layers {again.layers}",
        help="legal: uniform with 1 layer; in a pipeline any number of layers a block",
        fix="layout.recompute: full",
        targets=("deepspeed",),
    )


COMBINE_RULES: tuple[Rule, ...] = (
    *(
        Rule(
            "E09",
            (f"layout.{pair.first}", f"layout.{pair.second}"),
            _pair_broken(pair),
            _pair_explained(pair),
            (pair.first, pair.second),
        )
        for pair in PAIRS
    ),
    Rule("E09", ("layout.cp", "model"), _experts_broken, _experts, ("cp",)),
    Rule("E09", ("layout.order",), _order_broken, _order, ("order",)),
    Rule("E08", ("layout.tp", "versions.deepspeed"), _autotp_broken, _autotp, ("tp", "pp")),
    Rule("E08", ("layout.recompute",), _block_broken, _block, ("recompute", "pp")),
)
