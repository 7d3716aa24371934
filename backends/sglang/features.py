"""Optional features of SGLang that PARC plans."""

from __future__ import annotations

from parc.backends.shared.serving.features import supported_features
from parc.compiler.ir import Model

MTP_FAMILIES = frozenset(("deepseek_v3", "glm4_moe", "glm4_moe_lite"))
"""Families whose draft layer SGLang loads from the checkpoint of the model
(arg_groups/speculative_hook.py, _handle_eagle_family)."""
LORA_FAMILIES = frozenset(("llama", "mistral", "qwen2", "qwen3"))
"""Dense families whose projections have the names that lora/utils.py expects. PARC does not plan
adapters of experts."""


def service_features(model: Model) -> frozenset[str]:
    """Return the features that SGLang supports for ``model``."""
    return supported_features(model, MTP_FAMILIES, LORA_FAMILIES)
