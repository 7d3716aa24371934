"""Specs on both sides of the boundary of each Megatron rule, which differ in one number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table
from tests.backends.boundary import Boundary
from tests.compiled import Spec, changed

TABLE = Path(__file__).with_suffix(".yaml")

DENSE: Spec = {
    "parc": 1,
    "name": "boundary",
    "model": {
        "name": "dense",
        "layers": 16,
        "hidden": 1024,
        "ffn": 3072,
        "heads": 24,
        "kv_heads": 12,
        "head_dim": 64,
        "vocab": 32000,
        "position": {"kind": "rope", "max_positions": 65536},
    },
    "cluster": {"node": "dgx-h100", "nodes": 3},
    "job": {"sequence_length": 1536, "global_batch": 48},
    "layout": {"tp": 4, "pp": 2, "cp": 1, "micro_batch": 1},
    "emit": ["megatron"],
}
EXPERTS = {"count": 12, "top_k": 2, "size": 768, "pre_softmax": True}
ROUTED: Spec = {
    **DENSE,
    "model": {**DENSE["model"], "experts": EXPERTS},
    "layout": {"tp": 2, "pp": 2, "cp": 1, "ep": 2, "etp": 1, "micro_batch": 1},
}
LINEAR: Spec = {
    **DENSE,
    "model": {
        **DENSE["model"],
        "attention_gate": True,
        "linear_attention": {"key_heads": 12, "value_heads": 24, "key_dim": 64, "value_dim": 64},
    },
}
PATTERN: Spec = {
    **DENSE,
    "model": {
        **DENSE["model"],
        "pattern": "M-M*" * 4,
        "mamba": {"heads": 24, "head_dim": 64, "state_size": 64, "groups": 12},
    },
}
BASES = {"dense": DENSE, "routed": ROUTED, "linear": LINEAR, "pattern": PATTERN}


def _boundary(row: dict[str, Any]) -> Boundary:
    base = BASES[row["base"]]
    bad, good = changed(base, row["bad"]), changed(base, row["good"])
    return Boundary("megatron", row["code"], bad, good, row.get("megatron", ""))


BOUNDARIES = tuple(_boundary(row) for row in parse_table(TABLE.read_text("utf-8")))
