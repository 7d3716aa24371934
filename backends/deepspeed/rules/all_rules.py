"""All rules of a valid DeepSpeed layout, in the order in which they are checked."""

from __future__ import annotations

from parc.backends.deepspeed.rules.combine import COMBINE_RULES
from parc.backends.deepspeed.rules.experts import expert_rules
from parc.backends.deepspeed.rules.optimizer import OPTIMIZER_RULES
from parc.backends.deepspeed.rules.program import PROGRAM_RULES
from parc.backends.deepspeed.rules.sequence import SEQUENCE_RULES
from parc.backends.deepspeed.rules.step import STEP_RULES
from parc.backends.deepspeed.rules.tensor import TENSOR_RULES
from parc.backends.deepspeed.rules.zero import ZERO_RULES
from parc.compiler.ir import Problem
from parc.compiler.ir.rule import Rule


def rules(problem: Problem) -> tuple[Rule, ...]:
    """Return the rules that apply to ``problem``."""
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
