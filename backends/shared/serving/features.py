"""Optional features of a serving engine that PARC plans."""

from __future__ import annotations

from collections.abc import Collection

from parc.compiler.ir import Model

DRAFT_METHODS = ("eagle", "eagle3", "draft-model", "ngram")
POOLS = ("pool:prefill", "pool:decode")


def supported_features(
    model: Model, mtp_families: Collection[str], lora_families: Collection[str]
) -> frozenset[str]:
    """Return the features of an engine for ``model``.

    The engine has pools for prefill and decode, drafts by a second model or by n-grams, and copies
    of the KV cache in host memory.

    Args:
        model: the served model.
        mtp_families: families whose multi-token-prediction layer the engine runs as the draft.
        lora_families: families for which the engine serves adapters.
    """
    found = [*POOLS, *(f"speculative:{method}" for method in DRAFT_METHODS)]
    if model.family in mtp_families:
        found.append("speculative:mtp")
    if model.family in lora_families:
        found.append("lora")
    # Only keys and values of tokens are copied to host memory, not recurrent states.
    if model.recurrent is None:
        found.append("kv_offload")
    return frozenset(found)
