"""Optional features of vLLM that PARC plans: speculative decoding, and pools."""

from __future__ import annotations

from parc.compiler.ir import Model

MTP_FAMILIES = frozenset(
    (
        *("deepseek_v3", "ernie4_5_moe", "glm4_moe", "glm4_moe_lite", "mimo", "qwen3_next"),
        "qwen3_5_moe_text",
    )
)
"""Families whose checkpoints contain a multi-token-prediction layer that vLLM runs as the draft
(config/speculative.py, hf_config_override)."""
DRAFT_METHODS = frozenset(("eagle", "eagle3", "draft-model", "ngram"))


POOLS = frozenset(("pool:prefill", "pool:decode"))


def service_features(model: Model) -> frozenset[str]:
    """Return the features that vLLM supports for ``model``."""
    methods = DRAFT_METHODS | ({"mtp"} if model.family in MTP_FAMILIES else set())
    return POOLS | {f"speculative:{method}" for method in methods}
