"""Model families with optional features of SGLang that PARC plans."""

from __future__ import annotations

MTP_FAMILIES = frozenset(("deepseek_v3", "glm4_moe", "glm4_moe_lite"))
"""Families whose draft layer SGLang loads from the checkpoint of the model
(arg_groups/speculative_hook.py, _handle_eagle_family)."""
LORA_FAMILIES = frozenset(("llama", "mistral", "qwen2", "qwen3"))
"""Dense families whose projections have the names that lora/utils.py expects. PARC does not plan
adapters of experts."""
