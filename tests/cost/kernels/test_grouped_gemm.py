import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.kernels.grouped_gemm import ExpertShape, grouped_gemm_seconds
from parc.compiler.resolve.resolve_kernels import kernel_fit_of_gpu

GPUS = ("a100-sxm-80gb", "b200-180gb", "h100-sxm-80gb", "h200-sxm-141gb", "l40s-48gb")
DEEPSEEK = ExpertShape(tokens=4096, top_k=8, hidden=7168, inter=2048, experts=256, ep=8)
SHAPES = st.builds(
    ExpertShape,
    tokens=st.integers(1, 65_536),
    top_k=st.integers(1, 8),
    hidden=st.sampled_from((1024, 4096, 7168)),
    inter=st.sampled_from((768, 2048, 14_336)),
    experts=st.sampled_from((8, 64, 256)),
    tp=st.sampled_from((1, 2, 4)),
    ep=st.sampled_from((1, 2, 8)),
    imbalance=st.just(0.0),
)


@given(gpu=st.sampled_from(GPUS), shape=SHAPES)
def test_experts_are_never_faster_than_an_even_share_at_peak(gpu: str, shape: ExpertShape) -> None:
    fit = kernel_fit_of_gpu(gpu).grouped_gemm_fit("bf16")
    rows = shape.tokens * shape.top_k / shape.ep
    flops = 6.0 * rows * shape.hidden * shape.inter / shape.tp
    assert grouped_gemm_seconds(fit, shape._replace(imbalance=1.0)) >= flops / fit.flops_per_second


@given(gpu=st.sampled_from(GPUS), shape=SHAPES)
def test_expert_time_does_not_decrease_with_tokens(gpu: str, shape: ExpertShape) -> None:
    fit = kernel_fit_of_gpu(gpu).grouped_gemm_fit("bf16")
    more = shape._replace(tokens=2 * shape.tokens)
    assert grouped_gemm_seconds(fit, more) >= grouped_gemm_seconds(fit, shape)


@given(gpu=st.sampled_from(GPUS), shape=SHAPES)
def test_imbalance_never_saves_more_than_the_rounding_of_a_wave(
    gpu: str, shape: ExpertShape
) -> None:
    fit = kernel_fit_of_gpu(gpu).grouped_gemm_fit("bf16")
    even = grouped_gemm_seconds(fit, shape._replace(imbalance=1.0))
    # Taller tiles may save a started wave, so that the law is not exact.
    assert grouped_gemm_seconds(fit, shape._replace(imbalance=1.5)) >= 0.95 * even


def test_few_tokens_read_only_the_experts_to_which_they_are_routed() -> None:
    fit = kernel_fit_of_gpu("h100-sxm-80gb").grouped_gemm_fit("bf16")
    whole = DEEPSEEK._replace(ep=1)
    few = grouped_gemm_seconds(fit, whole._replace(tokens=1))
    many = grouped_gemm_seconds(fit, whole._replace(tokens=1024))
    reading = 256 * 3 * 7168 * 2048 * 2 / fit.bytes_per_second
    assert many > reading
    assert few < reading / 10


def test_with_many_tokens_arithmetic_is_the_limit_and_time_is_proportional() -> None:
    fit = kernel_fit_of_gpu("h100-sxm-80gb").grouped_gemm_fit("bf16")
    once = grouped_gemm_seconds(fit, DEEPSEEK._replace(tokens=32_768))
    twice = grouped_gemm_seconds(fit, DEEPSEEK._replace(tokens=65_536))
    assert twice / once == pytest.approx(2.0, rel=0.1)


def test_twice_the_expert_parallel_size_halves_the_work_per_rank() -> None:
    fit = kernel_fit_of_gpu("b200-180gb").grouped_gemm_fit("fp8")
    shape = DEEPSEEK._replace(tokens=65_536, imbalance=1.0)
    ratio = grouped_gemm_seconds(fit, shape) / grouped_gemm_seconds(fit, shape._replace(ep=16))
    assert 1.5 < ratio <= 2.0


def test_fp8_halves_the_bytes_of_weights() -> None:
    fits = kernel_fit_of_gpu("b200-180gb")
    shape = DEEPSEEK._replace(tokens=64, ep=1)
    ratio = grouped_gemm_seconds(fits.grouped_gemm_fit("bf16"), shape) / grouped_gemm_seconds(
        fits.grouped_gemm_fit("fp8"), shape
    )
    assert ratio == pytest.approx(2.0, rel=0.15)


def test_the_faster_of_two_8_bit_kernels_is_used() -> None:
    hopper, blackwell = kernel_fit_of_gpu("h100-sxm-80gb"), kernel_fit_of_gpu("b200-180gb")
    assert hopper.grouped_gemm_fit("fp8") is hopper.grouped["fp8_block"]
    assert blackwell.grouped_gemm_fit("fp8") is blackwell.grouped["fp8"]
    assert hopper.grouped_gemm_fit("bf16") is hopper.grouped["bf16"]
