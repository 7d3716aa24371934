"""Tests of the warning about a checkpoint whose weights have another format than the plan (F06)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.search.serving_specs import codes, spec


@pytest.mark.parametrize(
    ("model", "job", "warned"),
    [
        ("llama-3.1-70b", {}, False),
        ("llama-3.1-70b", {"precision": "fp8"}, True),
        ("llama-3.1-70b", {"precision": "fp8", "quantize": True}, False),
        ("llama-3.1-70b", {"precision": "int4"}, True),
        ("llama-3.1-70b", {"precision": "fp8", "checkpoint": "lab/Llama-3.1-70B-FP8"}, False),
        ("llama-3.1-70b", {"precision": "int4", "checkpoint": "lab/Llama-3.1-70B-FP8"}, True),
        ("llama-3.1-70b", {"checkpoint": "lab/Llama-3.1-70B-AWQ"}, True),
        ("llama-3.1-70b", {"precision": "fp8", "checkpoint": "/models/mine"}, False),
        ("deepseek-v3", {"precision": "fp8"}, False),
        ("deepseek-v3", {}, True),
    ],
)
def test_the_format_of_the_checkpoint_is_compared(
    model: str, job: dict[str, Any], warned: bool
) -> None:
    nodes = 4 if model == "deepseek-v3" else 1
    found = codes(spec(model, "hgx-h200", nodes, job={"max_model_len": 4096, **job}))
    assert ("F06" in found) is warned, found
