"""Rules on expert parallelism with DeepSpeed's MoE layer (deepspeed.moe.layer.MoE)."""

from __future__ import annotations

from parc.backends.deepspeed.rules.program import emitted_program
from parc.backends.shared.common_rules import NO_EXPERTS, expert_count_rule, experts_of
from parc.backends.shared.valid_values import filter_valid, format_setting, nearest_value
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import WORLD_FIELDS, Rule


def _violates_expert_groups(problem: Problem, layout: Layout) -> bool:
    # MoE(enable_expert_tensor_parallelism) is a switch: experts are split over the model axis,
    # which also splits the other layers.
    return layout.dp % layout.ep != 0 or layout.etp != layout.tp


def _explain_expert_groups(problem: Problem, layout: Layout) -> Finding:
    dp, ep = layout.dp, layout.ep
    good = filter_valid(divisors(experts_of(problem).count), lambda value: dp % value == 0)
    if dp % ep == 0:
        return Finding(
            message=f"experts are split over etp={layout.etp}, other layers over tp={layout.tp}",
            label=f"etp {layout.etp}, must be {layout.tp}: DeepSpeed has one tensor parallel size",
            help=f"valid etp: {layout.tp}",
            fix=f"layout.etp: {layout.tp}",
            causes=(Cause("layout.tp", f"tp {layout.tp}"),),
            targets=("deepspeed",),
        )
    return Finding(
        message=f"dp={dp} is not divisible by ep={ep}",
        label=f"{dp} % {ep} = {dp % ep}, must be 0: a dp group consists of whole ep groups",
        help=f"valid ep: {format_values(good)}",
        fix=format_setting("layout.ep", nearest_value(good, ep)),
        causes=(Cause("layout.pp", f"pp {layout.pp}"), Cause("layout.tp", f"tp {layout.tp}")),
        targets=("deepspeed",),
    )


def _violates_zero_stage(problem: Problem, layout: Layout) -> bool:
    # ZeRO-3 partitions over all ranks and has no separate expert groups: "MoE not supported with
    # Stage 3" (deepspeed/runtime/engine.py).
    return layout.zero_stage == 3


def _explain_zero_stage(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message="DeepSpeed does not support ZeRO-3 for models with experts",
        label="zero_stage 3, must be 2 or less",
        help="valid zero_stage: 0, 1, 2; with launch.program transformers also 3",
        fix="layout.zero_stage: 2",
        causes=(Cause("model", f"{experts_of(problem).count} experts"),),
        targets=("deepspeed",),
    )


def expert_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules about experts that this model can violate.

    For a dense model, the only rule is that ep is 1.
    """
    if problem.model.experts is None:
        return (NO_EXPERTS,)
    common = (
        expert_count_rule(lambda problem, layout: layout.dp),
        Rule(
            "D10",
            ("layout.ep", "layout.etp", "layout.dp"),
            _violates_expert_groups,
            _explain_expert_groups,
            ("ep", "etp", *WORLD_FIELDS),
        ),
    )
    # The experts of transformers are ordinary weights, which ZeRO-3 partitions like all others.
    return common if emitted_program(problem) == "transformers" else (*common, _STAGE)


_STAGE = Rule(
    "M08",
    ("layout.zero_stage", "model"),
    _violates_zero_stage,
    _explain_zero_stage,
    ("zero_stage",),
)
