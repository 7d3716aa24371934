"""Every rule that a layout must keep for vLLM, in the order in which search counts them."""

from __future__ import annotations

from parc.backends.vllm.rules_axes import AXIS_RULES
from parc.backends.vllm.rules_experts import EXPERT_RULES
from parc.backends.vllm.rules_widths import WIDTH_RULES
from parc.compiler.ir.serving_rule import ServingRule

RULES: tuple[ServingRule, ...] = (*WIDTH_RULES, *EXPERT_RULES, *AXIS_RULES)
