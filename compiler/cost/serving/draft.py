"""Draft of speculative decoding: its layout, weights and cache on the ranks of the model.

The draft runs on the last pipeline stage, split over the same tensor-parallel ranks as the model
(vLLM 0.33, config/speculative.py, create_draft_parallel_config).
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.counts.cache import mean_cache_bytes_per_token
from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.cost.serving.shard import (
    KV_BYTES,
    count_rank_weights,
    layers_bytes,
    weights_bytes,
)
from parc.compiler.ir import Model
from parc.compiler.ir.serving import ServingLayout, ServingSetup

BYTES_16_BIT = 2.0
"""Bytes per element of weights that no format quantizes."""


def draft_layout(draft: Model, layout: ServingLayout) -> ServingLayout:
    """Return the layout of the draft: one stage of the model's layout.

    Without experts, the data-parallel ranks run copies of the draft that do not communicate.
    """
    if draft.experts is None:
        return ServingLayout(layout.tp, pcp=layout.pcp, dcp=layout.dcp)
    return replace(layout, pp=1, replicas=1, stages=())


def draft_setup(setup: ServingSetup) -> ServingSetup:
    """Return the setup of the draft, which decodes one token per pass.

    Multi-token-prediction layers have the weight format of the model. Other drafts are assumed to
    have 16-bit checkpoints.
    """
    speculative = setup.speculative
    weights = setup.weights
    if speculative is not None and speculative.method != "mtp":
        weights = "fp16" if setup.weights == "fp16" else "bf16"
    return replace(
        setup,
        weights=weights,
        speculative=None,
        draft_tokens=0,
        accepted_tokens=1.0,
        lora=None,
    )


def draft_weights_bytes(setup: ServingSetup, layout: ServingLayout) -> float:
    """Return the bytes of the draft's weights on one rank of the last pipeline stage."""
    draft = setup.speculative
    if draft is None or draft.model is None:
        return 0.0
    model, own, place = draft.model, draft_setup(setup), draft_layout(draft.model, layout)
    extra = BYTES_16_BIT * draft.own_elements
    if draft.is_whole_model:
        return weights_bytes(model, place, own) + extra
    # The embedding is that of the model. EAGLE-3 has its own, smaller output projection.
    part = count_rank_weights(model, place, own)
    head = BYTES_16_BIT * part.head if draft.method == "eagle3" else 0.0
    return layers_bytes(model, part, own, LayerCounts.in_range(model)) + head + extra


def draft_cache_bytes_per_token(setup: ServingSetup, tp: int) -> float:
    """Return the bytes that the layers of the draft cache per token on one of ``tp`` ranks."""
    draft = setup.speculative
    if draft is None or draft.model is None:
        return 0.0
    attention = LayerCounts.in_range(draft.model).attention
    return attention * mean_cache_bytes_per_token(draft.model, tp, KV_BYTES[setup.kv])
