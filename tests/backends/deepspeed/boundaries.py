"""Load boundaries.yaml: per DeepSpeed rule, two specs that differ in one number."""

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
        "layers": 12,
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
    "layout": {"tp": 1, "pp": 1, "cp": 1, "micro_batch": 1, "zero_stage": 1},
    "launch": {"program": "train.py"},
    "emit": ["deepspeed"],
}
EXPERTS = {"count": 12, "top_k": 2, "size": 768, "pre_softmax": True}
ROUTED: Spec = {
    **DENSE,
    "model": {**DENSE["model"], "experts": EXPERTS},
    "layout": {**DENSE["layout"], "ep": 4, "etp": 1},
}
EMITTED: Spec = {name: part for name, part in DENSE.items() if name != "launch"}
BASES = {
    "dense": DENSE,
    "routed": ROUTED,
    "emitted": EMITTED,
    "emitted routed": {name: part for name, part in ROUTED.items() if name != "launch"},
}


def _boundary(row: dict[str, Any]) -> Boundary:
    base = BASES[row["base"]]
    bad, good = changed(base, row["bad"]), changed(base, row["good"])
    return Boundary("deepspeed", row["code"], bad, good, row.get("deepspeed", ""))


BOUNDARIES = tuple(_boundary(row) for row in parse_table(TABLE.read_text("utf-8")))
