"""``sbatch --test-only`` of a real Slurm accepts the job of every example and of random plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parc.backends.slurm.backend import BACKEND
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.reading.source import SpecSource, read_source
from tests.conformance.megatron.specs import valid_spec
from tests.conformance.slurm.offline_controller import OfflineController
from tests.conformance.slurm.release import (
    SlurmRelease,
    choose_release,
    newest_supported,
    reason_to_skip,
)

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(reason_to_skip() != "", reason=reason_to_skip() or "can run"),
]
EXAMPLES = Path(__file__).parents[3] / "examples"
JOBS = sorted(path.parents[2].name for path in EXAMPLES.glob("*/expected/slurm/job.sbatch"))
RANDOM = 40
RACK = 16


def planned(source: SpecSource, release: SlurmRelease) -> Plan:
    sink = Sink()
    version = f"versions.slurm={newest_supported(BACKEND.versions, release)!r}"
    plan = plan_spec(source, (version,), sink)
    assert plan is not None, sink.diagnostics
    return plan


def job_of(plan: Plan) -> str:
    files = emit_plan(plan, Sink())
    return next(one.text for one in files if one.path == "slurm/job.sbatch")


def racks_of(plan: Plan) -> dict[str, list[str]]:
    """Return the cluster's racks with the names of their hosts, including spares."""
    cluster = plan.problem.cluster
    return {rack.name: [host.name for host in rack.hosts] for rack in cluster.racks}


@pytest.mark.parametrize("kind", ["tree", "newer tree"])
@pytest.mark.parametrize("example", JOBS)
def test_sbatch_test_only_accepts_the_job_of_an_example(
    example: str, kind: str, tmp_path: Path
) -> None:
    release, topology = choose_release(kind)
    plan = planned(read_source(str(EXAMPLES / example / "spec.yaml")), release)
    gpus = plan.problem.cluster.node.gpus
    with OfflineController(tmp_path / "slurm", racks_of(plan), gpus, release, topology) as slurm:
        status, output = slurm.test_only(job_of(plan))
        assert status == 0, output
        assert "to start at" in output
        beyond = slurm.test_only(job_of(plan), f"--gpus-per-node={gpus + 1}")
        assert beyond[0] != 0, beyond


def with_named_racks(spec: dict[str, object], hosts: int, racks: int) -> dict[str, object]:
    """Return the spec on named hosts that are assigned to the racks in turn."""
    names = [[f"n{number + 1}" for number in range(rack, hosts, racks)] for rack in range(racks)]
    named = [{"name": f"rack{i}", "nodes": ",".join(some)} for i, some in enumerate(names) if some]
    cluster = spec["cluster"]
    assert isinstance(cluster, dict)
    return {**spec, "cluster": {"node": cluster["node"], "racks": named}}


@pytest.mark.parametrize("kind", ["tree", "newer tree"])
def test_sbatch_test_only_accepts_the_jobs_of_random_plans(kind: str, tmp_path: Path) -> None:
    """Half of the plans use named hosts that alternate between two or three racks."""
    release, topology = choose_release(kind)
    racks = {f"leaf{i}": [f"n{i * RACK + k + 1}" for k in range(RACK)] for i in range(64)}
    rejected, taken = {}, 0
    with OfflineController(tmp_path / "slurm", racks, 8, release, topology) as slurm:
        for seed in range(RANDOM):
            spec = {**valid_spec(seed), "emit": ["megatron", "slurm", "torchrun"]}
            hosts = spec["cluster"]["nodes"]
            if seed % 2 and hosts > 1:
                spec = with_named_racks(spec, hosts, 2 + seed % 4 // 2)
            plan = planned(SpecSource("<spec>", json.dumps(spec), None), release)
            status, output = slurm.test_only(job_of(plan))
            taken += status == 0
            if status:
                rejected[seed] = output
    assert rejected == {}
    assert taken == RANDOM


@pytest.mark.parametrize(("nodes", "each"), [(36, 18), (32, 16), (20, 10), (16, 16)])
def test_sbatch_test_only_accepts_the_job_of_nvlink_racks_on_blocks(
    nodes: int, each: int, tmp_path: Path
) -> None:
    """Blocks have 18 hosts, of which the plan uses some: the segment size."""
    release, topology = choose_release("block")
    spec = {
        "parc": 1,
        "name": "trays",
        "model": "llama-3-8b",
        "cluster": {"node": "gb200-nvl72", "nodes": nodes, "nodes_per_rack": each},
        "job": {"sequence_length": 4096, "global_batch": 24 * nodes, "precision": "bf16"},
        "layout": {"tp": 4, "pp": 1},
    }
    blocks = {f"rack{i}": [f"t{i * 18 + k:03}" for k in range(18)] for i in range(4)}
    with OfflineController(tmp_path / "slurm", blocks, 4, release, topology) as slurm:
        job = job_of(planned(SpecSource("<spec>", json.dumps(spec), None), release))
        assert f"#SBATCH --segment={each}" in job
        status, output = slurm.test_only(job)
        assert status == 0, output
        assert slurm.test_only(job, "--segment=7")[0] != 0


def test_sbatch_test_only_accepts_the_job_of_named_nvlink_racks_on_blocks(tmp_path: Path) -> None:
    release, topology = choose_release("block")
    plan = planned(read_source(str(EXAMPLES / "qwen3-235b-a22b/spec.yaml")), release)
    gpus = plan.problem.cluster.node.gpus
    with OfflineController(tmp_path / "slurm", racks_of(plan), gpus, release, topology) as slurm:
        status, output = slurm.test_only(job_of(plan))
    assert status == 0, output
