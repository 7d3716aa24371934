"""Tensor parallelism of models that the library transformers builds.

The emitted program applies the model's own plan (``base_model_tp_plan`` of its config) at run time.
The families in tensor_plans.yaml have such a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from parc.backends.shared.valid_degrees import tp_sizes_within_domain
from parc.backends.shared.valid_values import (
    filter_valid,
    format_setting,
    format_values,
    nearest_value,
)
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Layout, Model, Problem
from parc.compiler.ir.rule import Rule


@cache
def families_with_plan() -> frozenset[str]:
    """Return the families of models that the emitted program can split over tp."""
    text = files(__package__).joinpath("tensor_plans.yaml").read_text("utf-8")
    return frozenset(parse_table(text)["families"])


def tensor_plan_rules(framework: str) -> tuple[Rule, ...]:
    """Return rules on tp for models of transformers: a plan exists (E10), parts divide (D06)."""

    def violates_plan(problem: Problem, layout: Layout) -> bool:
        return layout.tp > 1 and problem.model.family not in families_with_plan()

    def explain_plan(problem: Problem, layout: Layout) -> Finding:
        model = problem.model
        return Finding(
            message=f"transformers has no tensor-parallel plan for {model.name}",
            label=f"tp is {layout.tp}, must be 1: family {model.family or 'unknown'} has no plan "
            f"that {framework} can train with",
            help="valid: tp 1 with any zero_stage and dp_shard; or emit megatron, which splits "
            "the models that it supports; or set launch.program to your own program",
            fix="layout.tp: 1",
            causes=(Cause("model", f"family {model.family or 'unknown'}"),),
            targets=(framework,),
        )

    def violates_etp(problem: Problem, layout: Layout) -> bool:
        return problem.model.experts is not None and layout.etp != layout.tp

    def explain_etp(problem: Problem, layout: Layout) -> Finding:
        return Finding(
            message="the plans of transformers split every expert over all tensor-parallel ranks",
            label=f"etp is {layout.etp}, but tp is {layout.tp}",
            help=f"valid etp: {layout.tp}",
            fix=f"layout.etp: {layout.tp}",
            targets=(framework,),
        )

    return (
        Rule("E10", ("layout.tp", "model"), violates_plan, explain_plan, ("tp",)),
        Rule("E10", ("layout.etp", "layout.tp"), violates_etp, explain_etp, ("tp", "etp")),
        Rule(
            "D06",
            ("layout.tp", "model"),
            _has_indivisible_parts,
            _explain_indivisible_parts,
            ("tp",),
        ),
    )


def _split_widths(model: Model) -> Iterator[tuple[str, int]]:
    """Yield (description, size) of the dimensions that only these plans split."""
    if model.experts is not None:
        yield "experts", model.experts.size
    for kind in model.kinds if model.variants else ():
        shapes = model.with_shapes_of(kind)
        if kind.mixer == "attention" and shapes.attention.latent is None:
            yield "attention, in heads of some layers", shapes.attention.heads
            yield "keys and values, in heads of some layers", shapes.attention.kv_heads
        if kind.mlp == "dense":
            yield "MLP of some layers", shapes.ffn.size


def _has_indivisible_parts(problem: Problem, layout: Layout) -> bool:
    return any(width % layout.tp for _, width in _split_widths(problem.model))


def _explain_indivisible_parts(problem: Problem, layout: Layout) -> Finding:
    tp, widths = layout.tp, tuple(_split_widths(problem.model))
    what, width = next(row for row in widths if row[1] % tp)
    good = filter_valid(
        tp_sizes_within_domain(problem), lambda size: all(one % size == 0 for _, one in widths)
    )
    return Finding(
        message=f"the width of the {what}, {width}, cannot be split over tp={tp}",
        label=f"{width} % {tp} = {width % tp}, must be 0",
        help=f"valid tp within one NVLink domain: {format_values(good)}",
        fix=format_setting("layout.tp", nearest_value(good, tp)),
        causes=(Cause("model", f"the width of the {what} is {width}"),),
    )
