"""Collective time by the distribution of a group over NVLink domains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.cost.kernels.collective_time import (
    OPERATIONS,
    CollectiveFit,
    InterDomainNetwork,
    Operation,
)
from parc.compiler.cost.schedules.formulas import chunks_in_flight
from parc.compiler.cost.setup.links import GroupSpan, Links, group_span
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Mesh
from parc.compiler.ir.layout import bubble_fraction
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.resolve.resolve_kernels import kernel_fit_of_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec


def plain(operation: Operation) -> CollectiveFit:
    """Return a fit of 300 GB/s without latency."""
    return CollectiveFit(operation, 300.0, 0.0, 0.0, 300.0, 0.0, 0.0, 1.0)


LINKS = Links(
    domain=8,
    fits={operation: plain(operation) for operation in OPERATIONS},
    network=InterDomainNetwork(gb_per_s_per_gpu=40.0, hop_seconds=0.0),
)


@pytest.mark.parametrize(
    ("sizes", "names", "expected"),
    [
        ((("tp", 8), ("cp", 1), ("dp", 4), ("pp", 2)), ("tp",), GroupSpan(8, 8)),
        ((("tp", 2), ("cp", 1), ("dp", 16), ("pp", 2)), ("dp",), GroupSpan(16, 4)),
        ((("tp", 2), ("cp", 2), ("dp", 8), ("pp", 2)), ("dp", "cp"), GroupSpan(16, 4)),
        ((("tp", 8), ("cp", 1), ("dp", 4), ("pp", 2)), ("pp",), GroupSpan(2, 1)),
        ((("tp", 2), ("cp", 1), ("dp", 1), ("pp", 4)), ("pp",), GroupSpan(4, 4)),
    ],
)
def test_members_that_share_an_nvlink_domain_are_counted(
    sizes: tuple[tuple[str, int], ...], names: tuple[str, ...], expected: GroupSpan
) -> None:
    mesh = Mesh.from_sizes(sizes)
    assert group_span(tuple(mesh.axis_by_name(name) for name in names), 8) == expected


def test_a_ring_between_domains_uses_the_nics_of_all_its_local_members() -> None:
    alone = LINKS.collective_seconds("all_gather", 1e9, GroupSpan(4, 1))
    assert alone == pytest.approx(3 / 4 / 40)
    four = LINKS.collective_seconds("all_gather", 1e9, GroupSpan(16, 4))
    assert four == pytest.approx(max(3 / 4 / 300, 15 / 16 / 160))


def test_groups_with_a_gpu_per_socket_share_one_nic_in_stacks_of_2021() -> None:
    links = replace(LINKS, shared_nic=InterDomainNetwork(gb_per_s_per_gpu=10.0, hop_seconds=0.0))
    for local, rate in ((1, 40), (2, 10), (4, 40), (8, 40)):
        group = GroupSpan(4 * local, local)
        seconds = links.collective_seconds("all_gather", 1e9, group)
        ring = (group.size - 1) / group.size / (rate * local)
        assert seconds == pytest.approx(max(ring, (local - 1) / local / 300))


def test_a_fabric_can_limit_the_rate_of_all_to_alls() -> None:
    links = replace(LINKS, exchange=InterDomainNetwork(gb_per_s_per_gpu=16.0, hop_seconds=0.0))
    group = GroupSpan(4, 1)
    assert links.collective_seconds("all_to_all", 1e9, group) == pytest.approx(3 / 4 / 16)
    assert links.collective_seconds("all_gather", 1e9, group) == pytest.approx(3 / 4 / 40)


def test_all_to_alls_over_efa_reach_a_smaller_share_of_the_nics() -> None:
    cluster = resolve_cluster(ClusterSpec(node="aws-p5", nodes=4), Library(None), Sink())
    assert cluster is not None
    row = cluster.generation.efficiency["transformer-engine"]
    links = Links.from_cluster(cluster, kernel_fit_of_cluster(cluster), row)
    assert links.exchange is not None
    share = cluster.fabric.all_to_all_rate_share
    assert 0 < share < row.network
    assert links.exchange.gb_per_s_per_gpu == pytest.approx(50 * share)
    other = replace(cluster, fabric=replace(cluster.fabric, all_to_all_rate_share=0.0))
    assert Links.from_cluster(other, kernel_fit_of_cluster(other), row).exchange is None


@pytest.mark.parametrize(
    ("stack", "count", "share"),
    [("unfused", 4, 1 / 4), ("unfused", 8, None), ("transformer-engine", 4, None)],
)
def test_only_nics_of_several_gpus_are_shared(stack: str, count: int, share: float | None) -> None:
    cluster = resolve_cluster(ClusterSpec(node="dgx-a100", nodes=4), Library(None), Sink())
    assert cluster is not None
    cluster = replace(cluster, node=replace(cluster.node, nics=count))
    row = cluster.generation.efficiency[stack]
    links = Links.from_cluster(cluster, kernel_fit_of_cluster(cluster), row)
    if share is None:
        assert links.shared_nic is None
    else:
        assert links.shared_nic is not None
        # The only busy NIC of a host reaches its data-sheet rate.
        rate = cluster.node.network_gb_per_s_per_gpu
        assert (
            links.shared_nic.gb_per_s_per_gpu == rate * share > links.network.gb_per_s_per_gpu / 4
        )


def test_an_all_to_all_is_limited_by_the_bytes_that_leave_the_domain() -> None:
    assert LINKS.collective_seconds("all_to_all", 1e9, GroupSpan(8, 8)) == pytest.approx(
        7 / 8 / 300
    )
    assert LINKS.collective_seconds("all_to_all", 1e9, GroupSpan(64, 8)) == pytest.approx(
        56 / 64 / 40
    )


def test_a_hop_uses_the_link_inside_a_domain_and_the_nic_across_domains() -> None:
    assert LINKS.message_seconds(1e9, 4) == pytest.approx(1 / 300)
    assert LINKS.message_seconds(1e9, 64) == pytest.approx(1 / 40)


@pytest.mark.parametrize(
    ("stage", "pp", "vpp", "micro_batches", "chunks"),
    [(0, 4, 1, 16, 4), (3, 4, 1, 16, 1), (0, 4, 1, 2, 2), (0, 4, 2, 16, 11), (3, 4, 2, 16, 5)],
)
def test_chunks_in_flight_follow_the_schedule(
    stage: int, pp: int, vpp: int, micro_batches: int, chunks: int
) -> None:
    assert chunks_in_flight(stage, pp, vpp, micro_batches) == chunks


def test_interleaving_divides_the_bubble() -> None:
    assert bubble_fraction(8, 1, 32) == pytest.approx(7 / 32)
    assert bubble_fraction(8, 4, 32) == pytest.approx(7 / 128)


def test_adapters_that_leave_transfers_to_the_cpu_limit_the_rate_of_all_groups() -> None:
    found = {}
    for fabric in ("infiniband-edr", "omni-path"):
        spec = ClusterSpec(node="jean-zay-a100", nodes=4, fabric=fabric)
        cluster = resolve_cluster(spec, Library(), Sink())
        assert cluster is not None
        row = cluster.generation.efficiency["unfused"]
        links = Links.from_cluster(cluster, kernel_fit_of_cluster(cluster), row)
        found[fabric] = links.network.gb_per_s_per_gpu / cluster.node.network_gb_per_s_per_gpu
    assert found == pytest.approx({"infiniband-edr": 0.75, "omni-path": 0.41})
