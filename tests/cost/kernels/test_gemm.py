from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.kernels.gemm import GemmFit, batched_gemm_seconds, gemm_seconds
from tests.kernel_fits import kernel_fit_of_gpu

PUBLISHED_8192 = [
    ("a100-sxm-80gb", 262.5, 0.05),
    ("b200-180gb", 1491.6, 0.13),
    ("b300-288gb", 1598.4, 0.13),
    ("gb200-186gb", 1584.0, 0.13),
    ("gb300-288gb", 1868.1, 0.10),
    ("h100-sxm-80gb", 782.7, 0.05),
    ("h200-sxm-141gb", 806.2, 0.05),
    ("l40s-48gb", 222.6, 0.10),
]
"""TFLOP/s of m = n = k = 8192 in bf16 (ai-dynamo/aiconfigurator, other runs than the fitted ones),
and tolerance. Published runs on Blackwell differ from each other by more than a tenth."""
FITTED = [
    (row[0], precision) for row in PUBLISHED_8192 for precision in kernel_fit_of_gpu(row[0]).gemms
]
DIM = st.integers(1, 70_000)
PLAIN = GemmFit(
    sms=100,
    flops_per_second=1e15,
    bytes_per_second=1e15,
    operand_bytes=2.0,
    peak_share=1.0,
    sm_gb_per_s=1e9,
    tile_seconds=0.0,
    wave=1.0,
    memory_share=1.0,
    write_factor=1.0,
    launch_seconds=0.0,
    sustained=0.0,
    norm=8.0,
    split=1.0,
)
"""A GPU without overheads: 100 SMs at 10 TFLOP/s each."""


@pytest.mark.parametrize(("gpu", "tflops", "within"), PUBLISHED_8192)
def test_a_large_square_gemm_is_near_the_published_rate(
    gpu: str, tflops: float, within: float
) -> None:
    seconds = gemm_seconds(kernel_fit_of_gpu(gpu).gemm_fit("bf16"), 8192, 8192, 8192)
    assert 2 * 8192**3 / seconds / 1e12 == pytest.approx(tflops, rel=within)


@given(case=st.sampled_from(FITTED), m=DIM, n=DIM, k=DIM)
def test_no_gemm_is_faster_than_the_peak_of_the_data_sheet(
    case: tuple[str, str], m: int, n: int, k: int
) -> None:
    fit = kernel_fit_of_gpu(case[0]).gemms[case[1]]
    assert gemm_seconds(fit, m, n, k) >= 2.0 * m * n * k / fit.flops_per_second


@given(case=st.sampled_from(FITTED), m=DIM, n=DIM, k=DIM)
def test_doubling_a_dimension_hardly_ever_reduces_time(
    case: tuple[str, str], m: int, n: int, k: int
) -> None:
    fit = kernel_fit_of_gpu(case[0]).gemms[case[1]].without_gaps_and_casts()
    # splitting a deeper K among idle SMs may pay on its own: by less than a tenth
    assert gemm_seconds(fit, 2 * m, 2 * n, 2 * k) >= gemm_seconds(fit, m, n, k) * 0.9


def test_one_tile_more_than_a_full_wave_needs_a_second_wave() -> None:
    k = 65_536  # tiles of 128: too deep for 64 to win, and whole waves leave nothing to split
    full = gemm_seconds(PLAIN, 128 * 10, 128 * 10, k)
    over = gemm_seconds(replace(PLAIN, sms=99), 128 * 10, 128 * 10, k)
    assert full == pytest.approx(2 * 1280 * 1280 * k / 1e15, rel=1e-3)
    assert over > 1.2 * full


def test_without_wave_quantization_a_partial_wave_takes_only_its_share() -> None:
    fit = replace(PLAIN, wave=0.0, sms=99)
    exact = 2 * 1280 * 1280 * 65_536 / 1e15
    assert gemm_seconds(fit, 1280, 1280, 65_536) == pytest.approx(exact, rel=0.02)


def test_a_gemm_with_few_tiles_and_large_k_is_split() -> None:
    alone = 65_536 * 2 * 64 * 64 * 100 / 1e15
    assert gemm_seconds(PLAIN, 64, 64, 65_536) < alone / 20


def test_a_gemm_of_few_rows_reads_its_weights_once_at_memory_bandwidth() -> None:
    fit = kernel_fit_of_gpu("h100-sxm-80gb").gemm_fit("bf16")
    weights_bytes = 2 * 16_384 * 16_384
    assert gemm_seconds(fit, 1, 16_384, 16_384) == pytest.approx(
        weights_bytes / fit.bytes_per_second / 0.9, rel=0.15
    )


def test_a_small_gemm_takes_at_least_its_launch() -> None:
    assert (
        1e-6 < gemm_seconds(kernel_fit_of_gpu("h100-sxm-80gb").gemm_fit("bf16"), 1, 32, 32) < 5e-6
    )


def test_host_floors_and_casts_can_be_removed_from_a_fit() -> None:
    fit = kernel_fit_of_gpu("b200-180gb").gemm_fit("fp8_block")
    assert gemm_seconds(fit, 64, 4096, 4096) > 1e-4
    assert gemm_seconds(fit.without_gaps_and_casts(), 64, 4096, 4096) < 5e-5


@pytest.mark.parametrize(("shape", "field"), [((8, 4096, 4096), "short"), ((8, 64, 64), "narrow")])
def test_the_host_floor_depends_on_the_shape(shape: tuple[int, int, int], field: str) -> None:
    fit = kernel_fit_of_gpu("h100-sxm-80gb").gemm_fit("fp8_block")
    assert fit.floors is not None
    assert gemm_seconds(fit, *shape) == pytest.approx(getattr(fit.floors, field), rel=0.05)


def test_lower_precision_is_faster_if_arithmetic_is_the_limit() -> None:
    fits = kernel_fit_of_gpu("gb200-186gb")
    times = [
        gemm_seconds(fits.gemm_fit(precision), 16_384, 16_384, 16_384)
        for precision in ("nvfp4", "fp8", "bf16")
    ]
    assert times == sorted(times)
    assert times[2] > 2.5 * times[0]


@pytest.mark.parametrize("gpu", [row[0] for row in PUBLISHED_8192])
def test_gemms_that_share_the_gpu_are_no_slower_than_one_after_the_other(gpu: str) -> None:
    fit = kernel_fit_of_gpu(gpu).gemm_fit("bf16")
    for shape in ((256, 1536, 2048), (4096, 4096, 7168), (2048, 4096, 1024)):
        one = batched_gemm_seconds(fit, 1, shape, 2)
        several = batched_gemm_seconds(fit, 16, shape, 2)
        assert one <= several <= 16 * one * (1 + fit.sustained)
        assert several >= 16 * 2 * shape[0] * shape[1] * shape[2] / fit.flops_per_second


def test_gemms_with_a_short_inner_dimension_take_the_traffic_of_their_sums() -> None:
    fit = replace(PLAIN, bytes_per_second=1e12)
    # Weight gradients of 64 experts with 64 rows each, added in fp32: 8 bytes per element.
    seconds = batched_gemm_seconds(fit, 64, (4096, 4096, 64), 8)
    traffic = 64 * 4096 * 4096 * 8 * fit.write_factor / (fit.bytes_per_second * fit.memory_share)
    assert traffic <= seconds
    assert seconds > 1.5 * batched_gemm_seconds(fit, 64, (4096, 4096, 64), 2)
