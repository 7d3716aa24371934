"""Megatron-Core accepts every catalog model, or PARC rejects it with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.ir import Plan
from tests.compiled import planned
from tests.conformance.megatron.test_accepts import plan_differences

pytestmark = pytest.mark.conformance
CANNOT_SAY = {f"PARC-E0{number}" for number in range(1, 8)}


def spec(model: str) -> dict[str, Any]:
    """Return a short run on more GPUs than any model needs."""
    return {
        "parc": 1,
        "name": "catalog",
        "model": model,
        "cluster": {"node": "dgx-b200", "nodes": 64},
        "job": {"sequence_length": 1024, "global_batch": 4096},
        "emit": ["megatron"],
    }


def test_megatron_accepts_every_catalog_model_that_it_can_express() -> None:
    plans: dict[str, Plan] = {}
    for model in Library(None).names("models"):
        plan, sink = planned(spec(model))
        if plan is not None:
            plans[model] = plan
        else:
            codes = {found.code for found in sink.diagnostics if found.severity == "error"}
            assert codes & CANNOT_SAY, (model, sink.diagnostics)
    assert len(plans) >= 30
    assert plan_differences(plans) == {}
