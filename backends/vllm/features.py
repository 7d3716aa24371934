"""Model families with optional features of vLLM that PARC plans."""

from __future__ import annotations

MTP_FAMILIES = frozenset(
    (
        *("deepseek_v3", "ernie4_5_moe", "glm4_moe", "glm4_moe_lite", "mimo", "qwen3_next"),
        "qwen3_5_moe_text",
    )
)
"""Families whose checkpoints contain a multi-token-prediction layer that vLLM runs as the draft
(config/speculative.py, hf_config_override)."""
LORA_FAMILIES = frozenset(
    (
        *("cohere", "gemma2", "gemma3_text", "glm", "granite", "llama", "mimo", "mistral"),
        *("nemotron", "opt", "phi3", "qwen2", "qwen3"),
    )
)
"""Dense families whose classes in model_executor/models are SupportsLoRA. PARC does not plan
adapters of experts."""
