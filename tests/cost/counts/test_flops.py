"""FLOPs against published tables with tokens per second and TFLOP/s of the same run."""

from __future__ import annotations

import dataclasses

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts.flops import mean_visible_keys, model_flops
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Model
from parc.compiler.resolve.resolve_model import resolve_model


def catalog(name: str) -> Model:
    model = resolve_model(name, Library(None), Sink())
    assert model is not None
    return model


# Megatron-Bridge performance summary, 25.09 and 25.11: (model, MTP layers, sequence,
# tokens/s/GPU, model TFLOP/s/GPU). The table rounds TFLOP/s to whole numbers.
PUBLISHED = [
    ("llama-3-8b", 0, 8192, 30624.0, 1576.0),
    ("llama-3.1-405b", 0, 8192, 664.0, 1676.0),
    ("llama-3.1-405b", 0, 8192, 624.0, 1576.0),
    ("qwen3-30b-a3b", 0, 4096, 18066.0, 416.0),
    ("deepseek-v3", 1, 4096, 2139.0, 557.0),
]


@pytest.mark.parametrize(("name", "mtp", "sequence", "tokens", "tflops"), PUBLISHED)
def test_flops_per_token_equal_the_ratio_of_published_columns(
    name: str, mtp: int, sequence: int, tokens: float, tflops: float
) -> None:
    model = dataclasses.replace(catalog(name), mtp_layers=mtp)
    assert model_flops(model, tokens, sequence) / 1e12 == pytest.approx(tflops, rel=2.5e-3)


def test_a_window_shorter_than_the_sequence_reduces_only_attention_flops() -> None:
    model = catalog("llama-3-8b")
    windowed = dataclasses.replace(
        model, attention=dataclasses.replace(model.attention, window=1024)
    )
    saved = model_flops(model, 1, 8192) - model_flops(windowed, 1, 8192)
    spans = 0.5 * 8192 - 1024 * (1 - 1024 / (2 * 8192))
    assert saved == pytest.approx(3 * 32 * 2 * 2 * 32 * 128 * spans)


@pytest.mark.parametrize(("window", "every"), [(None, 0), (512, 0), (512, 1), (512, 2), (512, 6)])
@pytest.mark.parametrize("sequence", [256, 512, 513, 4096])
def test_the_visible_keys_are_the_mean_over_all_positions_and_layers(
    window: int | None, every: int, sequence: int
) -> None:
    model = catalog("llama-3-8b")
    attention = dataclasses.replace(
        model.attention, window=window, full_attention_every=every or None
    )
    counted = 0
    for layer in range(6):
        whole = window is None or (every and layer % every == 0)
        most = sequence if whole or window is None else window
        counted += sum(min(position, most) for position in range(sequence))
    found = mean_visible_keys(dataclasses.replace(model, attention=attention), sequence)
    # The formula is an integral, which differs from the sum by half a key.
    assert abs(found - counted / (6 * sequence)) <= 0.5
