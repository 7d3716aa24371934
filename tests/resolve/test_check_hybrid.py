"""Facts of linear attention, Mamba layers and patterns: what contradicts itself is told."""

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


@pytest.mark.parametrize(
    ("facts", "changes", "at", "told"),
    [
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "value_heads": 40}},
            "model.linear_attention.value_heads",
            "40 value heads cannot share 16 key heads",
        ),
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "key_dim": None}},
            "model.linear_attention.key_dim",
            "is not given",
        ),
        (
            QWEN3_NEXT,
            {"linear_attention": {**LINEAR, "full_attention_every": 1}},
            "model.linear_attention.full_attention_every",
            "no layer has linear attention",
        ),
        (QWEN3_NEXT, {"window": 4096}, "model.window", "no meaning beside linear_attention"),
        (QWEN3_NEXT, {"mamba": MAMBA}, "model.mamba", "no layer is a Mamba layer"),
        (
            NEMOTRON_NANO,
            {"mamba": {**MAMBA, "groups": 7}},
            "model.mamba.groups",
            "64 Mamba heads do not form 7 equal groups",
        ),
        (NEMOTRON_NANO, {"mamba": None}, "model.mamba", "M layers, and mamba is not given"),
        (NEMOTRON_NANO, {"layers": 50}, "model.pattern", "52 letters for 50 layers"),
        (NEMOTRON_NANO, {"experts": None}, "model.experts", "E layers, and experts is not given"),
        (NEMOTRON_NANO, {"pattern": "M*" * 26}, "model.experts", "the pattern has no E"),
        (NEMOTRON_NANO, {"pattern": "ME-*" * 13}, "model.ffn", "is not given"),
        (NEMOTRON_NANO, {"mtp_layers": 1}, "model.mtp_layers", "no meaning beside pattern"),
        (
            NEMOTRON_NANO,
            {"experts": {**EXPERTS, "every": 2}},
            "model.experts.every",
            "no meaning beside pattern",
        ),
        (
            NEMOTRON_NANO,
            {"experts": {**EXPERTS, "top_k": 200}},
            "model.experts.top_k",
            "200 of 128 experts",
        ),
    ],
)
def test_what_contradicts_is_told_where_it_stands(
    facts: dict[str, Any], changes: dict[str, Any], at: str, told: str
) -> None:
    sink = Sink()
    spec = ModelSpec.model_validate_json(json.dumps({**facts, **changes}))
    assert resolve_model(spec, Library(None), sink) is None
    assert [(one.path, told in one.finding.message) for one in sink.diagnostics] == [(at, True)]
