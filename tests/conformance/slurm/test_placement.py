"""Ranks of a compiled job on a real Slurm run on the hosts of the rank map, or the job stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.slurm.jobs import (
    TORCHRUN,
    compiled,
    named_spec,
    rank_map,
    rank_racks,
    started_ranks,
    submit,
)
from tests.conformance.slurm.private_cluster import SlurmCluster
from tests.conformance.slurm.release import BLOCK_SINCE, choose_release, reason_to_skip

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(reason_to_skip() != "", reason=reason_to_skip() or "can run"),
]
RACKS = {"rack1": ["n1", "n3", "n5", "n7"], "rack2": ["n2", "n4", "n6", "n10"]}
LAYOUTS: dict[str, dict[str, Any]] = {
    "stages": {"tp": 8, "pp": 2},
    "replicas": {"tp": 4, "pp": 1},
    "experts": {"tp": 2, "pp": 2, "ep": 8, "etp": 1},
}


LEFT = [("clean", title) for title in sorted(LAYOUTS)] + [("left over", "stages")]
SIX = {"rack1": ["n1", "n3", "n5"], "rack2": ["n2", "n4", "n6"]}
"""More hosts than a block has, because topology/block rejects fewer hosts by name if they are in
two blocks.
"""


@pytest.fixture(scope="module", params=["tree", "block"])
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SlurmCluster]:
    """Start eight nodes in two racks; the host names do not follow the racks."""
    with SlurmCluster(
        tmp_path_factory.mktemp("slurm"), RACKS, *choose_release(request.param)
    ) as running:
        yield running


@pytest.mark.parametrize(("left", "title"), LEFT)
def test_ranks_are_on_the_hosts_and_gpus_of_the_rank_map(
    cluster: SlurmCluster, title: str, left: str
) -> None:
    """This holds even if an earlier job left another order in the environment."""
    work = compiled(cluster, title, named_spec(RACKS, **LAYOUTS[title]), TORCHRUN)
    (work / "stale").write_text("n10\nn1\nn2\nn3\nn4\nn5\nn6\nn7\n")
    stale = {"SLURM_HOSTFILE": str(work / "stale"), "SLURM_DISTRIBUTION": "cyclic"}
    output, status = submit(cluster, work, **(stale if left == "left over" else {}))
    assert status == "0", output
    assert started_ranks(work) == rank_map(work)
    assert len(started_ranks(work)) == 64


def test_hosts_that_slurm_chooses_get_the_ranks_of_the_plan(cluster: SlurmCluster) -> None:
    work = compiled(cluster, "counted", spec_without_names(8, 4, tp=8, pp=2), TORCHRUN)
    output, status = submit(cluster, work)
    assert status == "0", output
    assert_in_place(work)


def test_an_old_host_file_does_not_reorder_hosts_that_slurm_chooses(cluster: SlurmCluster) -> None:
    """It has no effect, or sbatch rejects --nodes together with it (since 23.11)."""
    work = compiled(cluster, "reordered", spec_without_names(8, 4, tp=8, pp=2), TORCHRUN)
    (work / "stale").write_text("n10\nn1\nn2\nn3\nn4\nn5\nn6\nn7\n")
    stale = {"SLURM_HOSTFILE": str(work / "stale")}
    if cluster.release.number >= BLOCK_SINCE:
        output = cluster.run("sbatch", "out/slurm/job.sbatch", cwd=work, **stale)
        assert "--nodes is incompatible with --distribution=arbitrary" in output
        return
    output, status = submit(cluster, work, **stale)
    assert status == "0", output
    assert_in_place(work)


def spec_without_names(nodes: int, each: int, **layout: Any) -> dict[str, Any]:
    """Return a job on this number of hosts in racks of ``each``; Slurm chooses the hosts."""
    spec = named_spec({}, **layout)
    spec["cluster"] = {"node": "dgx-h100", "nodes": nodes, "nodes_per_rack": each}
    return {**spec, "job": {**spec["job"], "global_batch": 240 if nodes % 3 == 0 else 256}}


def assert_in_place(work: Path) -> None:
    """Check that ranks run on the GPUs of the map and that two ranks share a rack only if they do
    so in the map.
    """
    rack_of = {host: rack for rack, hosts in RACKS.items() for host in hosts}
    ran, planned = started_ranks(work), rank_map(work)
    assert [(rank, gpu) for rank, _, gpu in ran] == [(rank, gpu) for rank, _, gpu in planned]
    hosts = {(there, host) for (_, host, _), (_, there, _) in zip(ran, planned, strict=True)}
    shared = {(there, rack_of[ran[rank][1]]) for rank, there in enumerate(rank_racks(work))}
    for pairs in (hosts, shared):  # the pairs must be one-to-one
        assert len(pairs) == len({left for left, _ in pairs}) == len({right for _, right in pairs})
    assert {rack for _, rack in shared} == set(RACKS)


def nvlink_spec(domain: int) -> dict[str, Any]:
    """Return a job on six hosts of four GPUs; the hosts of an NVLink domain form a rack of the
    plan.
    """
    spec = spec_without_names(6, domain, tp=4, pp=2)
    node = {"base": "gb200-nvl72", "nvlink_domain": 4 * domain}
    return {**spec, "cluster": {**spec["cluster"], "node": node}}


def test_segments_keep_the_hosts_of_an_nvlink_domain_in_a_block(tmp_path: Path) -> None:
    """Slurm must allocate three hosts of each of two blocks of four; without the segment it fills
    one block first.
    """
    with SlurmCluster(tmp_path, RACKS, *choose_release("block")) as blocks:
        work = compiled(blocks, "segment", nvlink_spec(3), TORCHRUN)
        script = (work / "out/slurm/job.sbatch").read_text()
        segment = "#SBATCH --segment=3\n"
        assert segment in script
        output, status = submit(blocks, work)
        assert status == "0", output
        spilt = compiled(blocks, "spilt", nvlink_spec(3), TORCHRUN)
        (spilt / "out/slurm/job.sbatch").write_text(script.replace(segment, ""))
        rejected, ended = submit(blocks, spilt)
    assert_in_place(work)
    assert "the plan requires racks of 3 3 hosts, the job got" in rejected
    assert (ended, started_ranks(spilt)) == ("3", [])


def test_a_job_stops_if_its_hosts_are_in_other_racks_than_planned(cluster: SlurmCluster) -> None:
    wrong = {"rack1": ["n1", "n2", "n3", "n4"], "rack2": ["n5", "n6", "n7", "n10"]}
    work = compiled(cluster, "racks", named_spec(wrong, tp=8, pp=2), TORCHRUN)
    output, status = submit(cluster, work)
    assert "share a rack in the plan" in output
    assert f"{cluster.place('rack1')} and {cluster.place('rack2')} of Slurm" in output
    assert status == "3"
    assert started_ranks(work) == []


def test_other_hosts_with_the_same_rack_sizes_are_ordered_by_rack(cluster: SlurmCluster) -> None:
    work = compiled(cluster, "moved", six_hosts_spec(), TORCHRUN)
    output, status = submit(cluster, work, "--nodelist=n3,n5,n7,n4,n6,n10")
    assert status == "0", output
    planned = (work / "out/slurm/hostfile").read_text().split()
    instead = {"n1": "n3", "n3": "n5", "n5": "n7", "n2": "n4", "n4": "n6", "n6": "n10"}
    assert [host for _, host, _ in started_ranks(work)][::8] == [instead[host] for host in planned]


def six_hosts_spec() -> dict[str, Any]:
    spec = named_spec(SIX, tp=8, pp=2)
    return {**spec, "job": {**spec["job"], "global_batch": 240}}


def test_a_job_stops_if_its_allocation_has_other_rack_sizes(cluster: SlurmCluster) -> None:
    work = compiled(cluster, "shape", six_hosts_spec(), TORCHRUN)
    output, status = submit(cluster, work, "--nodelist=n1,n3,n5,n7,n6,n10")
    got = f"{cluster.place('rack1')}=4 {cluster.place('rack2')}=2"
    assert f"the plan requires racks of 3 3 hosts, the job got {got}" in output
    assert status == "3"
    assert started_ranks(work) == []


@contextmanager
def drained(cluster: SlurmCluster, nodes: str) -> Iterator[None]:
    """Drain these nodes, and resume them at the end."""
    update = ("scontrol", "update", f"NodeName={nodes}")
    cluster.run(*update, "State=DRAIN", "Reason=test")
    try:
        yield
    finally:
        cluster.run(*update, "State=RESUME")


def test_a_job_that_names_a_drained_node_is_rejected(cluster: SlurmCluster) -> None:
    work = compiled(cluster, "drained", named_spec(RACKS, tp=8, pp=2), TORCHRUN)
    with drained(cluster, "n4"):
        output = cluster.run("sbatch", "--test-only", "out/slurm/job.sbatch", cwd=work)
    assert "allocation failure" in output


@pytest.mark.parametrize(("nodes", "status"), [("n4,n6", "0"), ("n1,n4", "3")])
def test_a_job_without_host_names_avoids_drained_nodes_or_stops(
    cluster: SlurmCluster, nodes: str, status: str
) -> None:
    """Four hosts of one rack and two of another are accepted; three and three are not."""
    work = compiled(cluster, f"nameless{status}", spec_without_names(6, 4, tp=8, pp=2), TORCHRUN)
    with drained(cluster, nodes):
        output, ended = submit(cluster, work)
    assert ended == status, output
    started = {host for _, host, _ in started_ranks(work)}
    assert len(started) == (6 if status == "0" else 0)
    assert not started & set(nodes.split(","))
    got = f"the job got {cluster.place('rack1')}=3 {cluster.place('rack2')}=3"
    assert (got in output) == (status == "3")
