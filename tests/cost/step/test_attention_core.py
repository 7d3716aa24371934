"""Attention core of stacks with FlashAttention-2, which is slow on GPUs with newer instructions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.catalog.find_generation import find_generation
from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.attention import FLASH_ATTENTION_2, flash_attention_2_factor
from parc.compiler.cost.step.layer_time import _compute_attention_core_seconds
from parc.compiler.diagnostics import Sink
from tests.cost.step.test_tensor_exchange import case


@pytest.mark.parametrize(
    ("head_dim", "products"),
    # TFLOP/s of FlashAttention-2 and cuDNN at 4,096 tokens without mask on H100, forward and
    # backward (arXiv:2407.08608, figures 5 and 6)
    [(64, ((321, 408), (279, 417))), (128, ((368, 609), (310, 499)))],
)
def test_flash_attention_2_is_slower_as_published(
    head_dim: int, products: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    (forward_2, forward), (backward_2, backward) = products
    # two matrix products forward, five backward
    published = (2 / forward_2 + 5 / backward_2) / (2 / forward + 5 / backward)
    assert flash_attention_2_factor(head_dim, (9, 0)) == pytest.approx(published, rel=0.01)


def test_flash_attention_2_is_slowest_on_data_center_gpus_of_blackwell() -> None:
    b200, b300, rtx = (
        flash_attention_2_factor(128, capability) for capability in ((10, 0), (10, 3), (12, 0))
    )
    assert b200 == b300 > rtx


def test_flash_attention_2_makes_both_passes_of_the_core_longer() -> None:
    cost_model, layout = case("llama-3-8b")
    newer = _compute_attention_core_seconds(cost_model, cost_model.problem.model, layout)
    cost_model.efficiency = replace(cost_model.efficiency, flash_attention_2=True)
    older = _compute_attention_core_seconds(cost_model, cost_model.problem.model, layout)
    assert older.forward == pytest.approx(FLASH_ATTENTION_2[128] * newer.forward)
    assert older.backward == pytest.approx(FLASH_ATTENTION_2[128] * newer.backward)


@pytest.mark.parametrize(
    ("generation", "is_slower"),
    [("ampere", False), ("ada", False), ("hopper", False), ("cdna3", True), ("cdna4", True)],
)
def test_torch_uses_older_kernels_than_transformer_engine_only_on_amd_gpus(
    generation: str, is_slower: bool
) -> None:
    found = find_generation(generation, Library(), Sink(), "")
    assert found is not None
    assert found.efficiency["torch-native"].flash_attention_2 == is_slower
    assert not found.efficiency["transformer-engine"].flash_attention_2
