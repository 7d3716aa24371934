import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.cost.kernels.collective_time import (
    OPERATIONS,
    CollectiveFit,
    InterDomainNetwork,
    Operation,
    collective_seconds,
    send_seconds,
    two_level_collective_seconds,
)
from tests.kernel_fits import kernel_fit_of_gpu

MIB = 2**20
BUS_512_MIB = [
    ("a100-sxm-80gb", "all_reduce", 222.3),
    ("a100-sxm-80gb", "all_gather", 205.3),
    ("a100-sxm-80gb", "all_to_all", 203.1),
    ("h100-sxm-80gb", "all_reduce", 445.0),
    ("h100-sxm-80gb", "reduce_scatter", 335.7),
    ("h100-sxm-80gb", "all_to_all", 315.2),
    ("b200-180gb", "all_reduce", 704.0),
    ("b200-180gb", "all_gather", 617.0),
    ("b300-288gb", "reduce_scatter", 614.2),
]
"""Bus bandwidth of eight GPUs in one host, GB/s (nccl-tests' convention); aiconfigurator."""
NDR = InterDomainNetwork(gb_per_s_per_gpu=50.0, hop_seconds=5e-6)
OPERATION = st.sampled_from(OPERATIONS)
GPU = st.sampled_from(("a100-sxm-80gb", "b200-180gb", "gb200-186gb", "h100-sxm-80gb"))
NBYTES = st.floats(1.0, 1e11)


def fit_of(operation: Operation, gpu: str = "h100-sxm-80gb") -> CollectiveFit:
    return kernel_fit_of_gpu(gpu).collectives[operation]


@pytest.mark.parametrize(("gpu", "operation", "bus_gb_per_s"), BUS_512_MIB)
def test_large_messages_reach_the_published_bus_bandwidth(
    gpu: str, operation: Operation, bus_gb_per_s: float
) -> None:
    seconds = collective_seconds(fit_of(operation, gpu), 512 * MIB, 8)
    factor = (2 if operation == "all_reduce" else 1) * 7 / 8
    assert factor * 512 * MIB / seconds / 1e9 == pytest.approx(bus_gb_per_s, rel=0.08)


@pytest.mark.parametrize(
    ("gpu", "microseconds"),
    [("a100-sxm-80gb", 28.1), ("h100-sxm-80gb", 18.7), ("b200-180gb", 29.0)],
)
def test_a_small_all_reduce_takes_its_published_latency(gpu: str, microseconds: float) -> None:
    seconds = collective_seconds(fit_of("all_reduce", gpu), 64 * 1024, 8)
    assert seconds * 1e6 == pytest.approx(microseconds, rel=0.25)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_collective_of_one_rank_or_zero_bytes_takes_no_time(operation: Operation) -> None:
    fit = fit_of(operation)
    assert collective_seconds(fit, 1e9, 1) == 0.0
    assert collective_seconds(fit, 0.0, 8) == 0.0
    assert two_level_collective_seconds(fit, NDR, 0.0, 8, 4) == 0.0


@given(gpu=GPU, operation=OPERATION, nbytes=NBYTES, ranks=st.integers(2, 72))
def test_collective_time_does_not_decrease_with_bytes(
    gpu: str, operation: Operation, nbytes: float, ranks: int
) -> None:
    fit = fit_of(operation, gpu)
    assert collective_seconds(fit, 1.1 * nbytes, ranks) >= collective_seconds(fit, nbytes, ranks)


@given(gpu=GPU, operation=OPERATION, nbytes=NBYTES, ranks=st.integers(2, 72))
def test_no_collective_is_faster_than_the_data_sheet_rate_of_the_link(
    gpu: str, operation: Operation, nbytes: float, ranks: int
) -> None:
    # one pass at least: reduction in the switch saves the second
    fit = fit_of(operation, gpu)
    wire = (ranks - 1) / ranks * nbytes / (fit.link_gb_per_s * 1e9)
    assert collective_seconds(fit, nbytes, ranks) >= wire


@given(
    operation=OPERATION, nbytes=NBYTES, local=st.sampled_from((1, 2, 4, 8)), n=st.integers(2, 2048)
)
def test_time_does_not_decrease_with_domains_and_is_limited_by_the_nic(
    operation: Operation, nbytes: float, local: int, n: int
) -> None:
    fit = fit_of(operation)
    seconds = two_level_collective_seconds(fit, NDR, nbytes, local, n)
    leaves = nbytes if operation == "all_to_all" else nbytes / local
    assert seconds >= (n - 1) / n * leaves / 50e9
    assert two_level_collective_seconds(fit, NDR, nbytes, local, 2 * n) >= seconds * (1 - 1e-9) or (
        operation == "all_to_all"  # whose part inside a domain shrinks
    )


def test_a_large_all_reduce_across_hosts_reaches_the_rate_of_the_nics() -> None:
    seconds = two_level_collective_seconds(fit_of("all_reduce"), NDR, 8e9, 8, 16)
    assert seconds == pytest.approx(2 * 127 / 128 * 8e9 / (8 * 50e9), rel=0.02)


def test_a_single_domain_uses_only_the_fit() -> None:
    fit = fit_of("all_gather")
    assert two_level_collective_seconds(fit, NDR, 1e8, 8, 1) == collective_seconds(fit, 1e8, 8)


def test_a_slower_link_changes_transfer_time_but_not_latency() -> None:
    fit = fit_of("all_gather")
    half = fit.scaled_to_link(fit.link_gb_per_s / 2)
    assert collective_seconds(half, 1e10, 8) == pytest.approx(
        2 * collective_seconds(fit, 1e10, 8), rel=0.01
    )
    assert collective_seconds(half, 256, 8) == pytest.approx(
        collective_seconds(fit, 256, 8), rel=0.01
    )


def test_a_message_takes_its_bytes_over_the_link_rate_plus_a_latency() -> None:
    fit = fit_of("all_to_all")
    assert send_seconds(fit, 1e9) > 1e9 / (fit.link_gb_per_s * 1e9)
    assert 3e-6 < send_seconds(fit, 1024) < 2e-5
