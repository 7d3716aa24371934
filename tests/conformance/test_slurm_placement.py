"""A compiled job on a real Slurm: rank r is on the host and GPU of the rank map, or nothing runs.

Debian 12's Slurm 22.05 knows trees alone: topology/block came with 23.11.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.slurm_cluster import BLOCK_SINCE, SlurmCluster, installed_release, missing
from tests.conformance.slurm_jobs import TORCHRUN, compiled, found, named_spec, rank_map, submit

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(missing() != "", reason=missing() or "can run"),
]
RACKS = {"rack1": ["n1", "n3", "n5", "n7"], "rack2": ["n2", "n4", "n6", "n10"]}
LAYOUTS: dict[str, dict[str, Any]] = {
    "stages": {"tp": 8, "pp": 2},
    "replicas": {"tp": 4, "pp": 1},
    "experts": {"tp": 2, "pp": 2, "ep": 8, "etp": 1},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Eight nodes in two racks whose names do not follow the racks."""
    port = 30000 + os.getpid() % 900
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), RACKS, port) as running:
        yield running


@pytest.mark.parametrize("title", sorted(LAYOUTS))
@pytest.mark.parametrize("left", ["clean", "left over"])
def test_ranks_are_on_the_hosts_and_gpus_of_the_rank_map(
    cluster: SlurmCluster, title: str, left: str
) -> None:
    """Whatever order an earlier job left in the environment."""
    work = compiled(cluster, title, named_spec(RACKS, **LAYOUTS[title]), TORCHRUN)
    (work / "stale").write_text("n10\nn1\nn2\nn3\nn4\nn5\nn6\nn7\n")
    stale = {"SLURM_HOSTFILE": str(work / "stale"), "SLURM_DISTRIBUTION": "cyclic"}
    said, status = submit(cluster, work, **(stale if left == "left over" else {}))
    assert status == "0", said
    assert found(work) == rank_map(work)
    assert len(found(work)) == 64


def test_blocks_are_matched_as_racks_are(tmp_path: Path) -> None:
    """Named hosts in the order of the plan; the same job without names in the order of blocks."""
    release = installed_release()
    if release < BLOCK_SINCE:
        pytest.skip(f"topology/block came with Slurm 23.11, this is {release}")
    spec = named_spec(RACKS, tp=8, pp=2)
    nameless = {**spec, "cluster": {"node": "dgx-h100", "nodes": 8, "nodes_per_rack": 4}}
    with SlurmCluster(tmp_path, RACKS, 27000 + os.getpid() % 900, "block") as blocks:
        named, counted = (
            compiled(blocks, name, one, TORCHRUN)
            for name, one in (("named", spec), ("counted", nameless))
        )
        for work in (named, counted):
            said, status = submit(blocks, work)
            assert status == "0", said
    assert found(named) == rank_map(named)
    hosts = [host for _, host, _ in found(counted)][::8]
    assert sorted(hosts) == sorted(host for rack in RACKS.values() for host in rack)
    assert {hosts[0], hosts[1]} <= set(RACKS["rack1"])


def test_hosts_in_other_racks_than_the_plan_has_them_stop_the_job(cluster: SlurmCluster) -> None:
    wrong = {"rack1": ["n1", "n2", "n3", "n4"], "rack2": ["n5", "n6", "n7", "n10"]}
    work = compiled(cluster, "racks", named_spec(wrong, tp=8, pp=2), TORCHRUN)
    said, status = submit(cluster, work)
    assert "share a rack in the plan" in said
    assert "spine.rack1 and spine.rack2 of Slurm" in said
    assert status == "3"
    assert found(work) == []


def test_other_hosts_of_the_same_shape_are_ordered_by_rack(cluster: SlurmCluster) -> None:
    planned = {"rack1": ["n1", "n3"], "rack2": ["n2", "n4"]}
    work = compiled(cluster, "moved", named_spec(planned, tp=8, pp=2), TORCHRUN)
    said, status = submit(cluster, work, "--nodelist=n5,n7,n6,n10")
    assert status == "0", said
    instead = {"n1": "n5", "n3": "n7", "n2": "n6", "n4": "n10"}
    hosts = (work / "out/slurm/hostfile").read_text().split()
    assert [host for _, host, _ in found(work)][::8] == [instead[host] for host in hosts]


def test_other_hosts_of_another_shape_stop_the_job(cluster: SlurmCluster) -> None:
    planned = {"rack1": ["n1", "n3"], "rack2": ["n2", "n4"]}
    work = compiled(cluster, "shape", named_spec(planned, tp=8, pp=2), TORCHRUN)
    said, status = submit(cluster, work, "--nodelist=n1,n5,n7,n10")
    assert "the plan needs racks of 2 2 hosts, the job got spine.rack1=3 spine.rack2=1" in said
    assert status == "3"
    assert found(work) == []


@contextmanager
def drained(cluster: SlurmCluster, nodes: str) -> Iterator[None]:
    """So many nodes are down for the administrator."""
    update = ("scontrol", "update", f"NodeName={nodes}")
    cluster.run(*update, "State=DRAIN", "Reason=test")
    try:
        yield
    finally:
        cluster.run(*update, "State=RESUME")


def test_a_job_that_names_a_drained_node_is_refused(cluster: SlurmCluster) -> None:
    work = compiled(cluster, "drained", named_spec(RACKS, tp=8, pp=2), TORCHRUN)
    with drained(cluster, "n4"):
        said = cluster.run("sbatch", "--test-only", "out/slurm/job.sbatch", cwd=work)
    assert "allocation failure" in said


@pytest.mark.parametrize(("nodes", "status"), [("n4,n6", "0"), ("n1,n4", "3")])
def test_a_job_without_names_runs_around_drained_nodes_or_stops(
    cluster: SlurmCluster, nodes: str, status: str
) -> None:
    """Four hosts of one rack and two of another, or nothing: three and three are refused."""
    spec = named_spec({}, tp=8, pp=2)
    spec["cluster"] = {"node": "dgx-h100", "nodes": 6, "nodes_per_rack": 4}
    spec["job"]["global_batch"] = 240
    work = compiled(cluster, f"nameless{status}", spec, TORCHRUN)
    with drained(cluster, nodes):
        said, ended = submit(cluster, work)
    assert ended == status, said
    started = {host for _, host, _ in found(work)}
    assert len(started) == (6 if status == "0" else 0)
    assert not started & set(nodes.split(","))
    assert ("the job got spine.rack1=3 spine.rack2=3" in said) == (status == "3")
