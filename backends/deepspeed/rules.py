"""What a legal DeepSpeed layout keeps: all families, in the order in which they are asked."""

from __future__ import annotations

from parc.backends.deepspeed.rules_combine import COMBINE_RULES
from parc.backends.deepspeed.rules_experts import expert_rules
from parc.backends.deepspeed.rules_optimizer import OPTIMIZER_RULES
from parc.backends.deepspeed.rules_program import PROGRAM_RULES
from parc.backends.deepspeed.rules_sequence import SEQUENCE_RULES
from parc.backends.deepspeed.rules_step import STEP_RULES
from parc.backends.deepspeed.rules_tensor import TENSOR_RULES
from parc.backends.deepspeed.rules_zero import ZERO_RULES
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule


def rules(problem: Problem) -> tuple[Rule, ...]:
    """Rules that bear on ``problem``."""
    return (
        *PROGRAM_RULES,
        *COMBINE_RULES,
        *TENSOR_RULES,
        *expert_rules(problem),
        *SEQUENCE_RULES,
        *ZERO_RULES,
        *STEP_RULES,
        *OPTIMIZER_RULES,
    )
