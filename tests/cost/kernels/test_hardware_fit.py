from dataclasses import replace
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.attention import AttentionShape, prefill_seconds
from parc.compiler.cost.kernels.gemm import gemm_seconds
from parc.compiler.cost.kernels.hardware_fit import build_kernel_fit
from parc.compiler.ir import Gpu
from tests.generations import generation
from tests.kernel_fits import kernel_fit_of_gpu

GPUS = Library().names("gpus")
UNKNOWN = Gpu("mine", "nvidia", "hopper", (9, 0), 0, 3350.0, (("bf16", 989.4),), "mine")


def read(name: str) -> dict[str, Any]:
    return Library().entry("kernels", name)


def test_kernel_entries_and_gpus_of_the_catalog_correspond() -> None:
    assert Library().names("kernels") == GPUS


@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_has_a_time_for_every_kernel(name: str) -> None:
    fit = kernel_fit_of_gpu(name)
    assert gemm_seconds(fit.gemm_fit("bf16"), 4096, 4096, 4096) > 0
    assert prefill_seconds(fit.prefill, AttentionShape(1, 4096, 32, 8, 128)) > 0


@pytest.mark.parametrize("name", GPUS)
def test_a_fitted_entry_states_its_measurements_and_its_errors(name: str) -> None:
    entry = Library().entry("kernels", name)
    assert entry["source"]
    if not entry["fitted"]:
        assert "like" in entry
        return
    for fit in fits(entry):
        assert fit["rows"] > 10
        assert 0 < fit["rms"] < 0.7  # outliers and all; the median is the bar
        assert 0 < fit["median"] < 0.20


def fits(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the quality of all fits of an entry."""
    own = [entry["fit"]] if "fit" in entry else []
    inside = [fits(value) for key, value in entry.items() if key != "fit" and type(value) is dict]
    return own + [fit for part in inside for fit in part]


def test_a_gpu_outside_the_catalog_is_scaled_from_its_generation() -> None:
    like = kernel_fit_of_gpu(generation("hopper").kernels_like)
    fit = build_kernel_fit(UNKNOWN, read, generation("hopper").kernels_like)
    assert not fit.fitted
    assert fit.gemm_fit("bf16") == like.gemm_fit("bf16")
    assert set(fit.gemms) == {"bf16"}


def test_an_unknown_gpu_name_raises_a_key_error() -> None:
    with pytest.raises(KeyError):
        kernel_fit_of_gpu("h101")


def test_changed_data_sheet_numbers_change_the_times() -> None:
    slow = build_kernel_fit(replace(UNKNOWN, peak_tflops=(("bf16", 494.7),)), read, "h100-sxm-80gb")
    fast = build_kernel_fit(UNKNOWN, read, "h100-sxm-80gb")
    ratio = gemm_seconds(slow.gemm_fit("bf16"), *[16_384] * 3) / gemm_seconds(
        fast.gemm_fit("bf16"), *[16_384] * 3
    )
    assert ratio == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(
    ("gpu", "precision", "stands_for"),
    [
        ("h100-sxm-80gb", "fp16", "bf16"),
        ("h100-sxm-80gb", "mxfp8", "fp8"),
        ("h100-sxm-80gb", "nvfp4", "fp8"),
        ("a100-sxm-80gb", "fp8", "bf16"),
        ("b200-180gb", "mxfp4", "nvfp4"),
        ("b200-180gb", "something", "bf16"),
    ],
)
def test_a_missing_precision_uses_the_nearest_wider_one(
    gpu: str, precision: str, stands_for: str
) -> None:
    fit = kernel_fit_of_gpu(gpu)
    assert fit.gemm_fit(precision) is fit.gemms[stands_for]


def test_gemms_and_attention_of_an_amd_gpu_reach_the_same_share_of_the_peak() -> None:
    entry = read("mi300x-192gb")
    like, fit = kernel_fit_of_gpu(entry["like"]), kernel_fit_of_gpu("mi300x-192gb")
    factor = entry["peak_share_factor"]
    assert factor < 1
    for other, own in (
        (like.gemm_fit("bf16"), fit.gemm_fit("bf16")),
        (like.prefill, fit.prefill),
    ):
        assert own.peak_share == pytest.approx(factor * other.peak_share)
