"""The preflight program passes in a real Slurm job as planned, and stops any other job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.free_ports import free_ports
from tests.conformance.slurm.jobs import compiled, named_spec, submit
from tests.conformance.slurm.private_cluster import SlurmCluster
from tests.conformance.slurm.release import choose_release, reason_to_skip
from tests.conformance.tool_checkers import tool_python

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(reason_to_skip() != "", reason=reason_to_skip() or "can run"),
]
BY_HAND = """#!/bin/bash
#SBATCH --nodes=2 --nodelist=n[1-2] --ntasks-per-node=1 --exclusive --output=%x.%j.out
# A manual launch: the environment may change the order of hosts.
source ./environment
srun --kill-on-bad-exit=1 bash -c 'NODE_RANK=$SLURM_PROCID bash out/torchrun/launch.sh'
"""


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SlurmCluster]:
    """Start three racks with one node each."""
    racks = {"rack1": ["n1"], "rack2": ["n2"], "rack3": ["n3"]}
    with SlurmCluster(
        tmp_path_factory.mktemp("slurm"), racks, *choose_release(request.param)
    ) as running:
        yield running


def small_spec() -> dict[str, Any]:
    """Return a spec for two hosts of one GPU, as many ranks as a small machine can start at
    once.
    """
    spec = named_spec({"rack1": ["n1"], "rack2": ["n2"]}, tp=1, pp=1)
    node = {"base": "dgx-h100", "gpus_per_node": 1, "nvlink_domain": 1, "nics": 1}
    cluster = {**spec["cluster"], "node": node}
    return {
        **spec,
        "model": "gpt2-small",
        "cluster": cluster,
        "job": {**spec["job"], "sequence_length": 1024},
    }


def preflight_job(cluster: SlurmCluster, name: str) -> Path:
    """Return the folder of a compiled job that uses the real torchrun."""
    torchrun = Path(tool_python("torch")).with_name("torchrun")
    work = compiled(cluster, name, small_spec(), f'#!/bin/sh\nexec {torchrun} "$@"\n')
    (work / "by_hand.sbatch").write_text(BY_HAND)
    return work


def gloo_variables() -> dict[str, str]:
    """Return a free port, and the loopback interface that all nodes share."""
    return {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "MASTER_PORT": str(free_ports(2)[0]),
    }


def logs(work: Path) -> str:
    return "".join(path.read_text() for path in sorted(work.glob("logs/*.log")))


@pytest.mark.parametrize(
    ("cluster", "flags"),
    [("tree", ()), ("tree", ("--nodelist=n2,n3",)), ("block", ())],
    ids=["tree", "tree, moved", "block"],
    indirect=["cluster"],
)
def test_preflight_passes_in_a_job_on_the_planned_or_equivalent_hosts(
    cluster: SlurmCluster, flags: tuple[str, ...]
) -> None:
    """It passes on the hosts of the plan, and on other hosts in as many racks."""
    work = preflight_job(cluster, f"agrees{len(flags)}")
    output, status = submit(cluster, work, *flags, **gloo_variables())
    assert status == "0", output + logs(work)
    assert "check_ranks: 2 ranks on 2 hosts match the plan" in logs(work)


@pytest.mark.parametrize("cluster", ["tree", "block"], indirect=True)
def test_preflight_stops_a_manual_launch_that_an_old_host_file_reorders(
    cluster: SlurmCluster,
) -> None:
    """The variable is set within the job, because newer sbatch rejects --nodes if it is in sbatch's
    own environment.
    """
    work = preflight_job(cluster, "stale")
    (work / "stale").write_text("n2\nn1\n")
    (work / "environment").write_text("export SLURM_HOSTFILE=$PWD/stale\n")
    output, status = submit(cluster, work, script="by_hand.sbatch", **gloo_variables())
    assert status not in {"0", ""}, output
    assert "rank 0: host n2, planned n1" in output
