"""Models with several kinds of token mixers, as mappings of the spec."""

from __future__ import annotations

import json
from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Model
from parc.compiler.resolve.resolve_model import resolve_model
from parc.compiler.spec.model_spec import ModelSpec

QWEN3_NEXT: dict[str, Any] = {
    "name": "qwen3-next",
    "layers": 48,
    "hidden": 2048,
    "heads": 16,
    "kv_heads": 2,
    "head_dim": 256,
    "vocab": 151936,
    "qk_norm": "head",
    "attention_gate": True,
    "position": {"kind": "rope", "max_positions": 262144, "percent": 0.25},
    "linear_attention": {"key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128},
    "experts": {"count": 512, "top_k": 10, "size": 512, "shared_size": 512, "shared_gate": True},
}
"""Every fourth layer has attention, the other layers have Gated DeltaNet; all have experts."""

NEMOTRON_NANO: dict[str, Any] = {
    "name": "nemotron-3-nano",
    "layers": 52,
    "hidden": 2688,
    "heads": 32,
    "kv_heads": 2,
    "head_dim": 128,
    "vocab": 131072,
    "gated": False,
    "activation": "relu2",
    "position": {"kind": "none", "max_positions": 262144},
    "pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "mamba": {"heads": 64, "head_dim": 64, "state_size": 128, "groups": 8},
    "experts": {
        "count": 128,
        "top_k": 6,
        "size": 1856,
        "shared_size": 3712,
        "score_function": "sigmoid",
        "router_bias": "buffer",
    },
}
"""Layers with a single part each."""


def model_of(facts: dict[str, Any], **changes: Any) -> Model:
    """Return the IR model of valid ``facts`` with ``changes``."""
    sink = Sink()
    spec = ModelSpec.model_validate_json(json.dumps({**facts, **changes}))
    model = resolve_model(spec, Library(None), sink)
    assert model is not None, sink.diagnostics
    return model
