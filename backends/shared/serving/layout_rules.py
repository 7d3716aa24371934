"""Rules of engines for layouts: heads, widths, blocks of scales, context parallelism and pools.

An engine calls these functions with the numbers of a model that it divides over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import (
    describe_cut_blocks,
    describe_indivisible,
    format_values,
)
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import RANK_FIELDS, ServingProblem, ServingRule

MOST_SHOWN_DEGREE = 64
"""Largest tensor parallel size in the lists of valid values."""
SIZES = ("pp", "pcp", "dcp")
"""Parallel sizes that split the layers or the tokens of a KV cache over ranks."""


@frozen
class SplitCount:
    """A number of the model that is divided over ranks, such as the number of attention heads."""

    path: str
    """Spec field with the number."""
    what: str
    """Name of the number in messages."""
    count: int
    ranks: int
    """Number of ranks over which ``count`` is divided."""


Parts = Callable[[ServingProblem, ServingLayout], Iterator[SplitCount]]


def heads(problem: ServingProblem, layout: ServingLayout) -> Iterator[SplitCount]:
    """Yield the number of attention heads, which the tensor-parallel ranks divide."""
    for one, _ in problem.model.attention_models:
        yield SplitCount("model.heads", "attention heads", one.attention.heads, layout.tp)


def kv_heads(problem: ServingProblem, layout: ServingLayout) -> Iterator[SplitCount]:
    """Yield the number of key-value heads, unless attention is latent."""
    if problem.model.attention.latent is not None:
        return
    for shape, _ in problem.model.attention_models:
        # With more ranks than key-value heads, each head is copied to the same number of ranks.
        kv, tp = shape.attention.kv_heads, layout.tp
        one, two = (kv, tp) if tp <= kv else (tp, kv)
        yield SplitCount("model.kv_heads", "key-value heads", one, two)


def _first_indivisible_count(
    parts: Parts, problem: ServingProblem, layout: ServingLayout
) -> SplitCount | None:
    """Return the first number that is not divisible by its ranks; None if all are divisible."""
    return next((one for one in parts(problem, layout) if one.count % one.ranks), None)


def _find_split_block(
    widths: Parts, problem: ServingProblem, layout: ServingLayout
) -> SplitCount | None:
    """Return the first width whose share per rank is not a multiple of the quantization block."""
    block = problem.service.setup.block_size
    if block == 1:
        return None
    return next(
        (
            one
            for one in widths(problem, layout)
            if one.ranks > 1 and one.count % one.ranks == 0 and one.count // one.ranks % block
        ),
        None,
    )


def _with_tp(layout: ServingLayout, tp: int) -> ServingLayout:
    """Return ``layout`` with another tensor parallel size; expert parallelism stays on or off."""
    return replace(layout, tp=tp, ep=tp * layout.dp if layout.ep > 1 else 1)


def _valid_tp(
    problem: ServingProblem,
    layout: ServingLayout,
    fault: Callable[[ServingProblem, ServingLayout], SplitCount | None],
) -> tuple[str, str]:
    """Return (valid tp sizes as text, edit that sets tp to the largest one below its value)."""
    number = problem.model.attention.heads
    valid = [
        tp
        for tp in range(1, min(number, MOST_SHOWN_DEGREE) + 1)
        if number % tp == 0
        and not _first_indivisible_count(kv_heads, problem, _with_tp(layout, tp))
        and fault(problem, _with_tp(layout, tp)) is None
    ]
    largest = max((tp for tp in valid if tp <= layout.tp), default=layout.tp)
    fix = f"layout.tp: {largest}" if largest != layout.tp else ""
    return format_values(valid), fix


def division_rule(
    code: str, parts: Parts, fields: tuple[str, ...], targets: tuple[str, ...]
) -> ServingRule:
    """Return the rule that each number that ``parts`` yields is divisible by its ranks."""

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        return _first_indivisible_count(parts, problem, layout) is not None

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        one = _first_indivisible_count(parts, problem, layout) or SplitCount("", "", 0, 1)
        valid, fix = _valid_tp(
            problem, layout, lambda *pair: _first_indivisible_count(parts, *pair)
        )
        prefix = "width of " if one.what.startswith(("the ", "an ")) else ""
        ranks = f"tp={layout.tp}" if one.ranks == layout.tp else f"its {one.ranks} ranks"
        return Finding(
            describe_indivisible(one.count, one.what, ranks),
            label=f"{one.count} % {one.ranks} = {one.count % one.ranks}, must be 0",
            help=f"valid tp: {valid}; to use the remaining GPUs, increase pp or replicas",
            fix=fix,
            causes=(Cause(one.path, f"{prefix}{one.what}: {one.count}"),),
            targets=targets,
        )

    return ServingRule(code, ("layout.tp", "model"), violates, explain, fields)


def block_rule(
    code: str, formats: tuple[str, ...], widths: Parts, targets: tuple[str, ...]
) -> ServingRule:
    """Return the rule that weights of a block, which share a scale, stay on one rank.

    The rule applies to weights in one of ``formats``.
    """

    def fault(problem: ServingProblem, layout: ServingLayout) -> SplitCount | None:
        applies = problem.service.setup.weights in formats
        return _find_split_block(widths, problem, layout) if applies else None

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        return fault(problem, layout) is not None

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        one = fault(problem, layout) or SplitCount("", "", 0, 1)
        block, share = problem.service.setup.block_size, one.count // one.ranks
        valid, fix = _valid_tp(
            problem, layout, lambda *pair: _first_indivisible_count(widths, *pair) or fault(*pair)
        )
        return Finding(
            describe_cut_blocks(block, share, one.what, one.ranks),
            label=f"{one.count} / {one.ranks} = {share}, {share} % {block} = {share % block}, "
            "must be 0",
            help=f"valid tp: {valid}; with layout.ep: on, experts stay whole",
            fix=fix,
            causes=(
                Cause("job.precision", f"{block} weights of a block share a scale"),
                Cause(one.path, f"the width of {one.what} is {one.count}"),
                Cause(
                    "the engine",
                    f"the engine reports: Weight output_partition_size = {share} is not divisible "
                    f"by weight quantization block_n = {block}",
                ),
            ),
            targets=targets,
        )

    at = ("layout.tp", "model", "job.precision")
    return ServingRule(code, at, violates, explain, RANK_FIELDS)


def no_context_parallelism_rule(title: str, label: str, targets: tuple[str, ...]) -> ServingRule:
    """Return the rule for an engine whose context parallelism PARC does not plan.

    ``title`` is the name of the engine; ``label`` is the reason.
    """

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        return layout.pcp > 1 or layout.dcp > 1

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        field, size = ("pcp", layout.pcp) if layout.pcp > 1 else ("dcp", layout.dcp)
        return Finding(
            f"PARC does not plan context parallelism for {title}: {field} {size}",
            label=label,
            help=f"valid {field}: 1; use dp to split the cache of a model with latent attention",
            fix=f"layout.{field}: 1",
            targets=targets,
        )

    return ServingRule("V12", ("layout.dcp", "layout.pcp"), violates, explain, ("pcp", "dcp"))


def stage_layers_rule(targets: tuple[str, ...]) -> ServingRule:
    """Return the rule that ``layout.stage_layers`` lists each layer of the model exactly once.

    The messages equal the errors of vLLM and SGLang (distributed/utils.py, get_pp_indices).
    """

    def violates(problem: ServingProblem, layout: ServingLayout) -> bool:
        pinned, layers = problem.pins.stages, problem.model.layers
        return pinned is not None and (len(pinned) != layout.pp or sum(pinned) != layers)

    def explain(problem: ServingProblem, layout: ServingLayout) -> Finding:
        pinned, layers = problem.pins.stages or (), problem.model.layers
        if len(pinned) != layout.pp:
            return Finding(
                f"len(partitions)={len(pinned)} does not match pp_size={layout.pp}",
                label=f"stage_layers lists {len(pinned)} stages, but pp is {layout.pp}",
                fix=f"layout.pp: {len(pinned)}",
                causes=(Cause("layout.pp", f"pp {layout.pp}"),),
                targets=targets,
            )
        return Finding(
            f"sum(partitions)={sum(pinned)} does not match num_hidden_layers={layers}",
            label=f"{' + '.join(map(str, pinned))} = {sum(pinned)}, must be {layers}",
            help="every layer of the model must be on exactly one stage",
            fix="layout.stage_layers: auto",
            causes=(Cause("model.layers", f"the model has {layers} layers"),),
            targets=targets,
        )

    return ServingRule("P01", ("layout.stage_layers",), violates, explain)


def explain_empty_stages(
    problem: ServingProblem, layout: ServingLayout, targets: tuple[str, ...]
) -> Finding:
    """Return the finding that the model has fewer layers than the layout has pipeline stages."""
    layers, pp = problem.model.layers, layout.pp
    return Finding(
        f"{pp} pipeline stages for {layers} layers: {pp - layers} stages would be empty",
        label=f"pp {pp} > {layers} layers",
        help=f"valid pp: 1 to {layers}",
        fix=f"layout.pp: {min(layers, 8)}",
        causes=(Cause("model.layers", f"the model has {layers} layers"),),
        targets=targets,
    )


def _splits_transferred_cache(problem: ServingProblem, layout: ServingLayout) -> bool:
    if problem.service.setup.pool == "both":
        return False
    return any(getattr(layout, name) > 1 for name in SIZES)


def _explain_split_cache(problem: ServingProblem, layout: ServingLayout) -> Finding:
    name = next(one for one in SIZES if getattr(layout, one) > 1)
    return Finding(
        "the KV cache of a pool must not be split by layers or tokens",
        label=f"{name} is {getattr(layout, name)}",
        help=f"valid {name} in a pool: 1; engines connect pools with different pp, pcp or dcp only "
        "in a few combinations, which PARC does not plan",
        fix=f"layout.{name}: 1",
        causes=(Cause("job.pool", f"the pool is {problem.service.setup.pool}"),),
    )


POOL_RULE = ServingRule(
    "V45",
    ("layout.pp", "layout.pcp", "layout.dcp", "job.pool"),
    _splits_transferred_cache,
    _explain_split_cache,
    SIZES,
)
