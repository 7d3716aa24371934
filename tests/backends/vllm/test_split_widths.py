"""Widths that tensor ranks of vLLM share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.vllm.rules_tensor_parallel import _split_tensors
from tests.search.serving_specs import plan_of, spec


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", ["MLP"]),
        ("qwen3-30b-a3b", ["expert"]),
        ("deepseek-v2-lite", ["MLP", "expert", "shared expert"]),
    ],
)
def test_only_tensors_that_a_model_has_are_split(name: str, expected: list[str]) -> None:
    plan = plan_of(spec(name, "hgx-h100"))
    model = plan.problem.model
    # The width of an MLP without a layer that has one is not split.
    wide = replace(plan.problem, model=replace(model, ffn=replace(model.ffn, size=1001)))
    assert [what for _, what, _, _ in _split_tensors(wide, plan.layout)] == expected
