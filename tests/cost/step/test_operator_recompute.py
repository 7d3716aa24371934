"""Recompute by operator repeats every second matrix product and all element-wise kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.registry import framework
from parc.compiler.cost.step.layer_time import layer_time
from parc.compiler.cost.step.operator_recompute import recomputed_product_share
from parc.compiler.cost.step.stage_time import recompute_seconds
from parc.compiler.ir import DENSE, LayerKind, Layout, Model, Recompute
from parc.compiler.resolve.resolve_kernels import cost_model_for
from tests.compiled import plan_of

FULL = Recompute("full", (), "uniform", 1)
OPERATORS = Recompute.selective(("op",))
NO_PRODUCT = Recompute.selective(("layernorm",))


def recomputed(recompute: Recompute, model: str = "llama-3-8b", **job: object) -> float:
    """Return the seconds that the backward pass of the last layer repeats under torchtitan."""
    spec = {
        "parc": 1,
        "name": "operators",
        "model": model,
        "cluster": {"node": "dgx-h100", "nodes": 8},
        "job": {"sequence_length": 8192, "global_batch": 64, **job},
        "layout": {"tp": 1, "pp": 1, "cp": 1, "micro_batch": 1},
    }
    plan = plan_of(spec)
    cost_model = cost_model_for(plan.problem, framework("torchtitan"))
    layout: Layout = replace(plan.layout, recompute=recompute)
    kind: LayerKind = plan.problem.model.last_kind
    return recompute_seconds(cost_model, layout, layer_time(cost_model, layout, kind), kind)


def model_of(name: str) -> Model:
    spec = {
        "parc": 1,
        "name": "products",
        "model": name,
        "cluster": {"node": "dgx-h100", "nodes": 64},
        "job": {"sequence_length": 2048, "global_batch": 512},
    }
    return plan_of(spec).problem.model


def test_keys_outputs_and_the_up_projection_are_computed_twice() -> None:
    hidden, keys, ffn = 4096, 1024, 14336
    again = hidden * (keys + hidden + ffn)
    whole = hidden * (2 * hidden + 2 * keys + 3 * ffn)
    assert recomputed_product_share(model_of("llama-3-8b"), DENSE) == pytest.approx(again / whole)


def test_the_second_product_of_a_plain_mlp_is_computed_twice() -> None:
    hidden = 12288
    again = hidden * (hidden + hidden + 4 * hidden)
    whole = hidden * (4 * hidden + 8 * hidden)
    assert recomputed_product_share(model_of("gpt3-175b"), DENSE) == pytest.approx(again / whole)


def test_operators_take_less_time_than_whole_layers_and_more_than_norms() -> None:
    assert recomputed(NO_PRODUCT) < recomputed(OPERATORS) < 0.6 * recomputed(FULL)


def test_products_in_8_bit_are_not_repeated() -> None:
    assert recomputed(OPERATORS, precision="fp8") < 0.7 * recomputed(OPERATORS)


def test_routed_experts_are_repeated() -> None:
    routed = recomputed(OPERATORS, "qwen3-30b-a3b") / recomputed(FULL, "qwen3-30b-a3b")
    assert routed > recomputed(OPERATORS) / recomputed(FULL)
