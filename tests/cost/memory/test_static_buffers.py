"""Buffers of Megatron's distributed optimizer on the last pipeline rank."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.accuracy.memory.rows import layout_of, model_of, words_of
from benchmarks.accuracy.memory.static_tensors import BUCKET_ELEMENTS, buffers, parameters
from parc.compiler.ir import Layout, Model

WIDTHS = "hidden=512 ffn=2048 heads=8 kv_heads=8 head_dim=64 vocab=50257 norm=layernorm bias=1"
BATCH = "micro_batch=4 sequence=1024 global_batch=32"


def model_and_layout(model: str, layout: str) -> tuple[Model, Layout]:
    """Return a model of twelve layers and its layout from words such as ``pp=2``."""
    words = words_of(f"{layout} {BATCH}")
    shape = model_of(words_of(f"layers=12 {WIDTHS} {model}"), words)
    return shape, layout_of(words, shape)


def test_without_the_distributed_optimizer_a_rank_updates_every_parameter() -> None:
    (buffer,) = buffers(*model_and_layout("tied=1", "dp=8"), overlapped=True)
    assert buffer.parts == buffer.sizes
    assert buffer.whole == sum(buffer.sizes)
    assert sum(buffer.bytes("bf16")) == 18 * buffer.whole


def test_one_shard_updates_all_parameters_for_any_buckets() -> None:
    model, layout = model_and_layout("tied=1", "pp=2 zero=1")
    (buffer,) = buffers(model, layout, overlapped=False)
    assert sorted(buffer.parts) == sorted(buffer.sizes)


def test_an_embedding_shared_by_two_stages_has_a_separate_bucket() -> None:
    model, layout = model_and_layout("tied=1", "pp=2 dp=4 zero=1")
    table = parameters(model, layout, layout.split.chunks[-1][-1]).dense[-1]
    (shared,) = buffers(model, layout, overlapped=False)
    (whole,) = buffers(replace(model, tied_embeddings=False), layout, overlapped=False)
    assert shared.parts[0] == table // 4
    assert table // 4 not in whole.parts


def test_overlapped_gradients_have_several_buckets_only_on_the_first_stage() -> None:
    for layout, apart in (("dp=8 zero=1", True), ("pp=2 dp=4 zero=1", False)):
        model, made = model_and_layout("layers=40 tied=0", layout)
        (one,) = buffers(model, made, overlapped=False)
        (more,) = buffers(model, made, overlapped=True)
        assert one.whole > BUCKET_ELEMENTS
        assert (len(more.parts) > len(one.parts)) == apart
