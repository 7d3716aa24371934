"""Families D and M: DeepSpeed's own experts (deepspeed.moe.layer.MoE)."""

from __future__ import annotations

from parc.backends.shared.plain_rules import NO_EXPERTS, expert_count_rule, experts_of
from parc.backends.shared.valid_values import divisors, format_pin, format_values, nearest, valid
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import WORLD_FIELDS, Rule


def _tiling_broken(problem: Problem, layout: Layout) -> bool:
    return layout.dp % layout.ep != 0 or layout.etp != layout.tp


def _tiling(problem: Problem, layout: Layout) -> Finding:
    dp, ep = layout.dp, layout.ep
    good = valid(divisors(experts_of(problem).count), lambda value: dp % value == 0)
    if dp % ep == 0:
        return Finding(
            message=f"experts are cut over etp={layout.etp}, the other layers over tp={layout.tp}",
            label=f"etp {layout.etp}, must be {layout.tp}: DeepSpeed has one tensor degree",
            help=f"legal etp: {layout.tp}",
            fix=f"layout.etp: {layout.tp}",
            causes=(Cause("layout.tp", f"tp {layout.tp}"),),
            targets=("deepspeed",),
        )
    return Finding(
        message=f"experts: ep={ep} does not divide dp={dp}",
        label=f"{dp} % {ep} = {dp % ep}, must be 0",
        help=f"legal ep: {format_values(good)}; expert groups lie inside one data-parallel group",
        fix=format_pin("layout.ep", nearest(good, ep)),
        causes=(Cause("layout.pp", f"pp {layout.pp}"), Cause("layout.tp", f"tp {layout.tp}")),
        targets=("deepspeed",),
    )


def _stage_broken(problem: Problem, layout: Layout) -> bool:
    return layout.zero_stage == 3


def _stage(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="DeepSpeed's experts are not supported with ZeRO-3",
        label="zero_stage 3 with experts, must be 2 or less",
        help="legal zero_stage: 0, 1, 2",
        fix="layout.zero_stage: 2",
        causes=(Cause("model", f"{experts_of(problem).count} experts"),),
        targets=("deepspeed",),
    )


def expert_rules(problem: Problem) -> tuple[Rule, ...]:
    """The rules that matter for this model."""
    if problem.model.experts is None:
        return (NO_EXPERTS,)
    return (
        expert_count_rule(lambda problem, layout: layout.dp),
        Rule(
            "D10",
            ("layout.ep", "layout.etp", "layout.dp"),
            _tiling_broken,
            _tiling,
            ("ep", "etp", *WORLD_FIELDS),
        ),
        Rule("M08", ("layout.zero_stage", "model"), _stage_broken, _stage, ("zero_stage",)),
    )
