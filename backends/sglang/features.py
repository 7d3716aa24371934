"""Optional features of SGLang that PARC plans: speculative decoding, and pools."""

from __future__ import annotations

from parc.compiler.ir import Model

MTP_FAMILIES = frozenset(("deepseek_v3", "glm4_moe", "glm4_moe_lite"))
"""Families whose draft layer SGLang loads from the checkpoint of the model
(arg_groups/speculative_hook.py, _handle_eagle_family)."""
DRAFT_METHODS = frozenset(("eagle", "eagle3", "draft-model", "ngram"))


POOLS = frozenset(("pool:prefill", "pool:decode"))


def service_features(model: Model) -> frozenset[str]:
    """Return the features that SGLang supports for ``model``."""
    methods = DRAFT_METHODS | ({"mtp"} if model.family in MTP_FAMILIES else set())
    return POOLS | {f"speculative:{method}" for method in methods}
