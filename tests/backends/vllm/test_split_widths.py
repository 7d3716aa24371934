"""Widths that tensor ranks of vLLM share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.vllm.rules_tensor_parallel import (
    _split_tensors,
    _splits_widths_unevenly,
    _valid_tp,
)
from parc.compiler.ir import ServingLayout
from tests.search.serving_specs import plan_of, problem_of, spec


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3.1-8b", ["the MLP"]),
        ("qwen3-30b-a3b", ["an expert"]),
        ("deepseek-v2-lite", ["the MLP", "an expert", "the shared expert"]),
    ],
)
def test_only_tensors_that_a_model_has_are_split(name: str, expected: list[str]) -> None:
    plan = plan_of(spec(name, "hgx-h100"))
    model = plan.problem.model
    # The width of an MLP without a layer that has one is not split.
    wide = replace(plan.problem, model=replace(model, ffn=replace(model.ffn, size=1001)))
    assert [what for _, what, _, _ in _split_tensors(wide, plan.layout)] == expected


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v2-lite", "qwen3-30b-a3b"])
@pytest.mark.parametrize(
    ("tp", "pcp", "dp"), [(16, 1, 1), (4, 2, 1), (4, 2, 2), (2, 4, 2), (4, 1, 3)]
)
@pytest.mark.parametrize("shared", [False, True])
def test_the_valid_tp_sizes_split_every_width_evenly(
    name: str, tp: int, pcp: int, dp: int, shared: bool
) -> None:
    """With expert parallelism, no expert is split; otherwise all ranks of an engine split it."""
    made = problem_of(spec(name, "hgx-h100"))
    model = replace(made.model, ffn=replace(made.model.ffn, size=1536))
    layout = ServingLayout(tp=tp, pcp=pcp, dp=dp, ep=tp * pcp * dp if shared else 1)
    expected = []
    for size in (size for size in range(1, 65) if model.attention.heads % size == 0):
        widths = [1536 % size] if model.dense_layers else []
        if model.experts is not None:
            widths += [] if shared else [model.experts.size % (size * pcp * dp)]
            widths += [model.experts.shared_size % size]
        if not any(widths):
            expected.append(size)
    valid, fix = _valid_tp(replace(made, model=model), layout, _splits_widths_unevenly)
    assert valid == (", ".join(map(str, expected)) or "none")
    # An edit must lead to a valid size.
    largest = max((size for size in expected if size <= tp), default=tp)
    assert fix == ("" if largest == tp else f"layout.tp: {largest}")
