"""Fractions of a layer that selective recomputation repeats."""

from __future__ import annotations

import pytest

from parc.compiler.cost.counts.flops import layer_flops
from parc.compiler.cost.step.stage_time import _module_fraction
from parc.compiler.ir import DENSE, ROUTED, LayerKind
from tests.search.search_reference import cost_model_of

MODULES = ("core_attn", "mlp", "mlp_in", "attn_out", "moe", "shared_experts", "mla_up_proj")


@pytest.mark.parametrize(
    ("name", "which"), [("llama-3-8b", DENSE), ("deepseek-v3", DENSE), ("deepseek-v3", ROUTED)]
)
def test_modules_are_fractions_of_the_flops_of_their_layer(name: str, which: LayerKind) -> None:
    cost_model = cost_model_of(
        {
            "parc": 1,
            "name": "shares",
            "model": name,
            "cluster": {"node": "dgx-h100", "nodes": 4},
            "job": {"sequence_length": 4096, "global_batch": 128},
        }
    )
    share = {module: _module_fraction(cost_model, module, which) for module in MODULES}
    flops = layer_flops(cost_model.problem.model, which, 1.0, 4096)
    assert all(0 <= value < 1 for value in share.values())
    if which == DENSE:
        assert share["mlp"] * flops.total == pytest.approx(flops.mlp)
        assert share["mlp_in"] == pytest.approx(share["mlp"] * 2 / 3)
        assert share["moe"] == share["shared_experts"] == 0
    else:
        assert share["mlp"] == 0
        assert share["moe"] * flops.total == pytest.approx(flops.experts + flops.mlp)
        assert share["shared_experts"] * flops.total == pytest.approx(flops.mlp)
    products = 2 * share["mla_up_proj"] + share["mlp"] + share["moe"]
    assert products <= 1
    # A module without matrix products.
    assert _module_fraction(cost_model, "layernorm", which) == 0.03
