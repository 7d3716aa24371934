"""FLOPs against published tables with tokens per second and TFLOP/s of the same run."""

from __future__ import annotations

import dataclasses

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.counts.flops import model_flops
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
