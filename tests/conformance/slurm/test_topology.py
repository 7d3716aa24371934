"""``parc import`` reads the output of a real Slurm back as the cluster that it was started with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.resolve.resolve_cluster import resolve_cluster
from parc.compiler.spec.cluster_spec import ClusterSpec
from parc.compiler.tools.importers.format_fragment import fragment_tree
from parc.compiler.tools.importers.import_files import import_files
from parc.compiler.topology.hostlist import expand_host_list
from tests.conformance.slurm.private_cluster import PATIENCE_SECONDS, SlurmCluster
from tests.conformance.slurm.release import choose_release, reason_to_skip

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(reason_to_skip() != "", reason=reason_to_skip() or "can run"),
]
QUERIES = {"sinfo": ["sinfo", "--json"], "scontrol": ["scontrol", "show", "nodes", "--json"]}
SCONTROL_SINCE = (23, 2)
RACKS = {"rack1": ["n1", "n3", "n5", "n7"], "rack2": ["n2", "n4", "n6", "n10"]}


@pytest.fixture(scope="module", params=["tree", "newer tree", "block"])
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SlurmCluster]:
    """Start eight nodes in two racks; the host names do not follow the racks."""
    with SlurmCluster(
        tmp_path_factory.mktemp("slurm"), RACKS, *choose_release(request.param)
    ) as running:
        yield running


def fragment(*texts: str) -> dict[str, object]:
    sink = Sink()
    files = [(text, f"file{number}") for number, text in enumerate(texts)]
    found = import_files("auto", files, sink)
    assert found is not None, sink.diagnostics
    tree: dict[str, object] = fragment_tree(found.fragment, sink)["cluster"]
    assert not sink.failed()
    return tree


def test_slurm_prints_the_topology_of_its_topology_conf(cluster: SlurmCluster) -> None:
    printed = fragment(cluster.run("scontrol", "show", "topology"))
    assert printed == fragment((cluster.root / "topology.conf").read_text())
    above = {} if cluster.topology == "block" else {"above": ["spine"]}
    assert printed["racks"] == [
        {"name": "rack1", "nodes": "n[1,3,5,7]", **above},
        {"name": "rack2", "nodes": "n[2,4,6,10]", **above},
    ]


@pytest.mark.parametrize("by", sorted(QUERIES))
def test_imported_nodes_have_their_gpus_and_a_drained_node_is_unavailable(
    cluster: SlurmCluster, by: str
) -> None:
    if by == "scontrol" and cluster.release.number < SCONTROL_SINCE:
        pytest.skip("scontrol prints no JSON before 23.02")
    drain = ("scontrol", "update", "NodeName=n4")
    cluster.run(*drain, "State=DRAIN", "Reason=test")
    try:
        topology = cluster.run("scontrol", "show", "topology")
        nodes = cluster.run(*QUERIES[by])
    finally:
        cluster.run(*drain, "State=RESUME")
    tree = fragment(topology, nodes)
    assert tree["unavailable"] == "n4"
    spec = {**tree, "node": "dgx-h100"}
    sink = Sink()
    found = resolve_cluster(ClusterSpec.model_validate_json(json.dumps(spec)), Library(), sink)
    assert found is not None, sink.diagnostics
    assert [(rack.name, [host.name for host in rack.hosts]) for rack in found.racks] == [
        ("rack1", RACKS["rack1"]),
        ("rack2", ["n2", "n6", "n10"]),
    ]


def test_the_hosts_of_a_job_are_imported_from_squeue(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The job waits for a file while squeue is read. Its GPUs are imported too."""
    ask = ("--nodes=3", "--exclusive", "--gpus-per-node=8", "--account=ml")
    wait = f"--wrap=timeout 900 sh -c 'until test -e {tmp_path}/go; do sleep 0.1; done'"
    job = cluster.run("sbatch", "--parsable", *ask, wait).strip()
    output = read_queue(cluster, job)
    (tmp_path / "go").touch()
    nodes = {str(node) for one in output["jobs"] for node in expand_host_list(one["nodes"])}
    topology = cluster.run("scontrol", "show", "topology")
    tree = fragment(topology, json.dumps(output))
    racks = tree["racks"]
    assert isinstance(racks, list)
    assert len(nodes) == 3
    assert {host for rack in racks for host in expand_host_list(rack["nodes"])} == nodes
    assert tree["node"] == {"gpus_per_node": 8}


def read_queue(cluster: SlurmCluster, job: str) -> dict[str, Any]:
    """Return the output of squeue as soon as the job runs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        output: dict[str, Any] = json.loads(cluster.run("squeue", "--json", f"--jobs={job}"))
        if [one["job_state"] for one in output["jobs"]] in (["RUNNING"], [["RUNNING"]]):
            return output
        assert time.monotonic() < deadline, output
        time.sleep(0.1)
