"""Contradictions between linear attention, Mamba layers and patterns are reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.model_spec import ModelSpec
from tests.hybrid_models import NEMOTRON_NANO, QWEN3_NEXT

LINEAR = QWEN3_NEXT["linear_attention"]
MAMBA = NEMOTRON_NANO["mamba"]
EXPERTS = NEMOTRON_NANO["experts"]
DENSE = {
    **{"layers": 4, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 1000},
    "position": {"max_positions": 1024},
}
"""A model without a recurrent mixer and without a window."""


@pytest.mark.parametrize(
    ("facts", "changes", "at", "words"),
    [
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "value_heads": 40}},
            "model.linear_attention.value_heads",
            "40 value heads are not divisible by 16 key heads",
        ),
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "key_dim": None}},
            "model.linear_attention.key_dim",
            "is not set",
        ),
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "full_attention_every": 1}},
            "model.linear_attention.full_attention_every",
            "no layer has linear attention",
        ),
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "kind": "lightning", "conv_size": 4}},
            "model.linear_attention.conv_size",
            "no effect with kind: lightning",
        ),
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "full_rank_gates": True}},
            "model.linear_attention.full_rank_gates",
            "no effect with kind: gated-delta-net",
        ),
        (QWEN3_NEXT, {"window": 4096}, "model.window", "no effect with linear_attention"),
        (QWEN3_NEXT, {"mamba": MAMBA}, "model.mamba", "cannot have both"),
        (QWEN3_NEXT, {"convolution": {}}, "model.convolution", "cannot have both"),
        (NEMOTRON_NANO, {"pattern": "E*" * 26}, "model.mamba", "no layer is a Mamba layer"),
        (
            NEMOTRON_NANO,
            {"mamba": {**MAMBA, "groups": 7}},
            "model.mamba.groups",
            "64 Mamba heads are not divisible by 7 groups",
        ),
        (
            NEMOTRON_NANO,
            {"mamba": {**MAMBA, "groups": 1, "step_rank": 168}},
            "model.mamba.head_dim",
            "head_dim is 64, but layers with step_rank are Mamba-1",
        ),
        (
            NEMOTRON_NANO,
            {"mamba": {**MAMBA, "head_dim": 1, "groups": 1, "step_rank": 168, "norm": True}},
            "model.mamba.norm",
            "norm has no effect with step_rank",
        ),
        (
            DENSE,
            {"layer_variants": [{"layers": [1], "mixer": "parallel"}]},
            "model.layer_variants[0].mixer",
            "parallel needs a recurrent mixer",
        ),
        (
            DENSE,
            {"layer_variants": [{"layers": [1], "compression": {"rate": 4}}]},
            "model.layer_variants[0].compression",
            "compression needs model.window",
        ),
        (DENSE, {"low_rank": {"queries": 64}}, "model.low_rank.output", "is not set"),
        (
            NEMOTRON_NANO,
            {"mamba": None},
            "model.mamba",
            "model.pattern contains M, but model.mamba is not set",
        ),
        (NEMOTRON_NANO, {"layers": 50}, "model.pattern", "52 letters for 50 layers"),
        (
            NEMOTRON_NANO,
            {"experts": None},
            "model.experts",
            "model.pattern contains E, but model.experts is not set",
        ),
        (NEMOTRON_NANO, {"pattern": "M*" * 26}, "model.experts", "model.pattern contains no E"),
        (NEMOTRON_NANO, {"pattern": "ME-*" * 13}, "model.ffn", "is not set"),
        (NEMOTRON_NANO, {"mtp_layers": 1}, "model.mtp_layers", "no effect with pattern"),
        (
            NEMOTRON_NANO,
            {"experts": {**EXPERTS, "every": 2}},
            "model.experts.every",
            "no effect with pattern",
        ),
        (
            NEMOTRON_NANO,
            {"experts": {**EXPERTS, "top_k": 200}},
            "model.experts.top_k",
            "200 experts, because the model has 128",
        ),
    ],
)
def test_a_contradiction_is_reported_at_its_key(
    facts: dict[str, Any], changes: dict[str, Any], at: str, words: str
) -> None:
    sink = Sink()
    spec = ModelSpec.model_validate_json(json.dumps({**facts, **changes}))
    assert resolve_model(spec, Library(None), sink) is None
    assert [(one.path, words in one.finding.message) for one in sink.diagnostics] == [(at, True)]
