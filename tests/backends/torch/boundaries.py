"""Load boundaries.yaml as pairs of specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parc.compiler.diagnostics.table_yaml import parse_table
from tests.backends.boundary import Boundary
from tests.backends.torch.specs import DENSE
from tests.compiled import Spec, changed

TABLE = Path(__file__).with_name("boundaries.yaml")


def base(framework: str) -> Spec:
    """Return a spec for two hosts with few pinned fields."""
    spec: Spec = {
        "parc": 1,
        "name": "boundary",
        "model": DENSE,
        "cluster": {"node": "dgx-h100", "nodes": 2},
        "job": {"sequence_length": 1024, "global_batch": 64},
        "layout": {"micro_batch": 1},
        "emit": framework.split(" + "),
    }
    if framework == "torchtitan":
        spec["layout"] |= {"pp": 1, "cp": 1, "tp": 1}
    if framework == "accelerate":
        spec["job"]["gradient_precision"] = "bf16"
        spec["launch"] = {"program": "train.py"}
    return spec


def _boundary(framework: str, row: dict[str, Any]) -> Boundary:
    bad, good = (_spec(framework, row[side]) for side in ("bad", "good"))
    return Boundary(framework, row["code"], bad, good, row.get("refused", ""))


def _spec(framework: str, changes: Spec) -> Spec:
    spec = changed(base(framework), changes)
    launch = {key: value for key, value in spec.get("launch", {}).items() if value is not None}
    return spec | ({"launch": launch} if "launch" in spec else {})


BOUNDARIES = tuple(
    _boundary(framework, row)
    for framework, rows in parse_table(TABLE.read_text("utf-8")).items()
    for row in rows
)
