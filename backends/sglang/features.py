"""Optional features of SGLang that PARC plans."""

from __future__ import annotations

from parc.compiler.ir import Model

MTP_FAMILIES = frozenset(("deepseek_v3", "glm4_moe", "glm4_moe_lite"))
"""Families whose draft layer SGLang loads from the checkpoint of the model
(arg_groups/speculative_hook.py, _handle_eagle_family)."""
DRAFT_METHODS = frozenset(("eagle", "eagle3", "draft-model", "ngram"))

LORA_FAMILIES = frozenset(("llama", "mistral", "qwen2", "qwen3"))
"""Dense families whose projections have the names that lora/utils.py expects. PARC does not plan
adapters of experts."""
POOLS = ("pool:prefill", "pool:decode")


def service_features(model: Model) -> frozenset[str]:
    """Return the features that SGLang supports for ``model``."""
    methods = DRAFT_METHODS | ({"mtp"} if model.family in MTP_FAMILIES else set())
    others = {"lora"} if model.family in LORA_FAMILIES else set()
    # Only keys and values of tokens are copied to host memory, not recurrent states.
    others |= {"kv_offload"} if model.recurrent is None else set()
    return frozenset((*POOLS, *others, *(f"speculative:{method}" for method in methods)))
