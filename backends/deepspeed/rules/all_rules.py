"""Rules for a valid DeepSpeed layout, in the order in which they are checked."""

from __future__ import annotations

from parc.backends.deepspeed.rules.experts import expert_rules
from parc.backends.deepspeed.rules.program import PROGRAM_RULES, missing_model_parts
from parc.backends.deepspeed.rules.sequence import SEQUENCE_RULES
from parc.backends.deepspeed.rules.tensor import TENSOR_RULES
from parc.backends.deepspeed.rules.unsupported_combinations import COMBINATION_RULES
from parc.backends.deepspeed.rules.zero import OPTIMIZER_RULES, ZERO_RULES
from parc.backends.deepspeed.split import find_split, why_no_split
from parc.backends.shared.common_rules import BATCH
from parc.backends.shared.torch.emitted_program import program_rules
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import Rule


def deepspeed_rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules that a layout of ``problem`` must satisfy, in the order of the checks."""
    return (
        *PROGRAM_RULES,
        *program_rules(problem, "deepspeed", missing_model_parts),
        *COMBINATION_RULES,
        *TENSOR_RULES,
        *expert_rules(problem),
        *SEQUENCE_RULES,
        *ZERO_RULES,
        _STAGE_SPLIT,
        BATCH,
        *OPTIMIZER_RULES,
    )


def _violates_stage_split(problem: Problem, layout: Layout) -> bool:
    return find_split(problem, layout.pp, layout.vpp) is None


def _explain_stage_split(problem: Problem, layout: Layout) -> Finding:
    return why_no_split(problem, layout.pp, layout.vpp).finding


_STAGE_SPLIT = Rule(
    "P01", ("layout.pp", "model.layers"), _violates_stage_split, _explain_stage_split, ("pp", "vpp")
)
