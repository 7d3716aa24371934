"""Tensor parallelism of models that the library transformers builds.

The emitted program applies the model's own plan (``base_model_tp_plan`` of its config) at run time.
The families in tensor_plans.yaml have such a plan.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


@cache
def families_with_plan() -> frozenset[str]:
    """Return the families of models that the emitted program can split over tp."""
    text = files(__package__).joinpath("tensor_plans.yaml").read_text("utf-8")
    return frozenset(parse_table(text)["families"])


def tensor_plan_rules(framework: str) -> tuple[Rule, ...]:
    """Return the rule that transformers has a usable plan for models with tp > 1 (E10)."""

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

    return (Rule("E10", ("layout.tp", "model"), violates_plan, explain_plan, ("tp",)),)
