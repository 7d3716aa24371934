import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.kernels.attention import (
    BACKWARD_FACTOR,
    AttentionShape,
    prefill_seconds,
)
from tests.kernel_fits import kernel_fit_of_gpu

GPUS = ("a100-sxm-80gb", "b200-180gb", "gb300-288gb", "h100-sxm-80gb", "l40s-48gb", "mi300x-192gb")
SHAPES = st.builds(
    AttentionShape,
    batch=st.integers(1, 256),
    tokens=st.integers(1, 131_072),
    heads=st.sampled_from((8, 16, 32, 64)),
    kv_heads=st.sampled_from((1, 2, 4, 8)),
    head_dim=st.sampled_from((64, 128, 192, 256)),
    causal=st.just(True),
    window=st.just(0.0),
)
LLAMA = AttentionShape(batch=1, tokens=8192, heads=32, kv_heads=8, head_dim=128)


@given(gpu=st.sampled_from(GPUS), shape=SHAPES)
def test_causal_prefill_is_never_faster_than_half_of_the_scores_at_peak(
    gpu: str, shape: AttentionShape
) -> None:
    fit = kernel_fit_of_gpu(gpu).prefill
    flops = 2.0 * shape.batch * shape.heads * shape.tokens**2 * shape.head_dim
    assert prefill_seconds(fit, shape) >= flops / fit.flops_per_second


@given(gpu=st.sampled_from(GPUS), shape=SHAPES)
def test_prefill_time_does_not_decrease_with_sequence_length(
    gpu: str, shape: AttentionShape
) -> None:
    fit = kernel_fit_of_gpu(gpu).prefill
    longer = shape._replace(tokens=shape.tokens + 128)
    assert prefill_seconds(fit, longer) >= prefill_seconds(fit, shape)


@given(gpu=st.sampled_from(GPUS), shape=SHAPES)
def test_attention_time_does_not_decrease_with_batch_size(gpu: str, shape: AttentionShape) -> None:
    more = shape._replace(batch=2 * shape.batch)
    fits = kernel_fit_of_gpu(gpu)
    assert prefill_seconds(fits.prefill, more) >= prefill_seconds(fits.prefill, shape)


def test_long_causal_prefill_takes_half_the_time_of_full_attention() -> None:
    fit = kernel_fit_of_gpu("h100-sxm-80gb").prefill
    long = LLAMA._replace(tokens=32_768)
    ratio = prefill_seconds(fit, long) / prefill_seconds(fit, long._replace(causal=False))
    assert ratio == pytest.approx(0.5, rel=0.05)


def test_forward_on_hopper_reaches_the_rate_that_flash_attention_3_reports() -> None:
    # arXiv:2407.08608, figure 5: causal forward, head dim 128, 16k tokens: about 610 TFLOP/s
    fit = kernel_fit_of_gpu("h100-sxm-80gb").prefill
    shape = AttentionShape(batch=1, tokens=16_384, heads=16, kv_heads=16, head_dim=128)
    tflops = 2.0 * 16 * 16_384**2 * 128 / prefill_seconds(fit, shape) / 1e12
    assert tflops == pytest.approx(610, rel=0.15)


def test_a_sliding_window_bounds_prefill_time() -> None:
    fits = kernel_fit_of_gpu("h100-sxm-80gb")
    long = LLAMA._replace(tokens=65_536)
    narrow = long._replace(window=4096)
    assert prefill_seconds(fits.prefill, narrow) < prefill_seconds(fits.prefill, long) / 4


def test_a_window_wider_than_the_sequence_changes_nothing() -> None:
    fit = kernel_fit_of_gpu("h100-sxm-80gb").prefill
    assert prefill_seconds(fit, LLAMA._replace(window=8192)) == prefill_seconds(fit, LLAMA)


def test_blackwell_ultra_gpus_have_a_faster_softmax() -> None:
    assert (
        kernel_fit_of_gpu("b300-288gb").prefill.score_seconds
        < kernel_fit_of_gpu("b200-180gb").prefill.score_seconds
    )


def test_the_backward_factor_follows_from_products_and_rates_of_flash_attention() -> None:
    assert pytest.approx(5 / 2 * 73 / 63, rel=0.01) == BACKWARD_FACTOR
