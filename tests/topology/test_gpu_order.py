"""The order of GPUs inside a host."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import Mesh
from parc.compiler.topology.arrange_hosts import gpu_order
from tests.placement.placement_plans import NODE

PCIE = replace(NODE, nvlink_domain=1, link_kind="pcie", gpu_numa=(0, 1) * 4)
PAIRS = (Mesh.from_sizes((("tp", 2), ("dp", 16))),)
HOST_WIDE = (Mesh.from_sizes((("tp", 8), ("dp", 4))),)


def test_groups_over_pcie_share_a_numa_node() -> None:
    assert gpu_order(PCIE, PAIRS, 8) == (0, 2, 4, 6, 1, 3, 5, 7)


def test_the_nearest_nic_decides_inside_a_numa_node() -> None:
    wired = replace(PCIE, gpu_nics=("b", "b", "a", "a", "b", "b", "a", "a"))
    assert gpu_order(wired, PAIRS, 8) == (2, 6, 0, 4, 3, 7, 1, 5)


def test_the_numa_node_that_comes_first_stays_first() -> None:
    dgx_like = replace(PCIE, gpu_numa=(3, 1, 3, 1, 7, 5, 7, 5))
    assert gpu_order(dgx_like, PAIRS, 8) == (0, 2, 1, 3, 4, 6, 5, 7)


def test_the_order_is_kept_if_no_more_groups_would_share_a_numa_node() -> None:
    assert gpu_order(replace(PCIE, gpu_numa=(3, 3, 1, 1, 7, 7, 5, 5)), PAIRS, 8) == ()
    assert gpu_order(PCIE, HOST_WIDE, 8) == ()


def test_the_order_is_kept_with_nvlink_unknown_wiring_or_idle_gpus() -> None:
    assert gpu_order(replace(PCIE, nvlink_domain=8), PAIRS, 8) == ()
    assert gpu_order(replace(PCIE, gpu_numa=()), PAIRS, 8) == ()
    assert gpu_order(PCIE, PAIRS, 4) == ()


def test_groups_that_do_not_divide_the_host_do_not_change_the_order() -> None:
    # Sorted by NUMA node, the first 6 GPUs would share one; but groups of 6 cross the host's end.
    sixes = (Mesh.from_sizes((("tp", 6), ("dp", 4))),)
    uneven = replace(PCIE, gpu_numa=(0, 0, 0, 1, 0, 0, 0, 1))
    assert gpu_order(uneven, sixes, 8) == ()
