"""``sbatch --test-only`` of a real Slurm takes the job of every example and of random plans."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from parc.backends.slurm.backend import BACKEND
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import Plan
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.source import Source, read_source
from tests.conformance.megatron_specs import legal_spec
from tests.conformance.slurm_cluster import missing
from tests.conformance.slurm_paper import PaperSlurm, installed_version

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(missing() != "", reason=missing() or "can run"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(path.parents[2].name for path in EXAMPLES.glob("*/expected/slurm/job.sbatch"))
RANDOM = 40
PORT = 29000 + os.getpid() % 1000
RACK = 16


def planned(source: Source) -> Plan:
    sink = Sink()
    version = f"versions.slurm={installed_version(BACKEND.versions)!r}"
    plan = plan_spec(source, (version,), sink)
    assert plan is not None, sink.diagnostics
    return plan


def job_of(plan: Plan) -> str:
    files = emit_plan(plan, Sink())
    return next(one.text for one in files if one.path == "slurm/job.sbatch")


def racks_of(plan: Plan) -> dict[str, list[str]]:
    """The cluster's racks with the names of their hosts, spares too."""
    cluster = plan.problem.cluster
    return {rack.name: [host.name for host in rack.hosts] for rack in cluster.racks}


@pytest.mark.parametrize("example", JOBS)
def test_the_job_of_an_example_could_run(example: str, tmp_path: Path) -> None:
    plan = planned(read_source(str(EXAMPLES / example / "spec.yaml")))
    gpus = plan.problem.cluster.node.gpus
    with PaperSlurm(tmp_path / "slurm", racks_of(plan), gpus, PORT) as slurm:
        status, said = slurm.judge(job_of(plan))
        assert status == 0, said
        assert "to start at" in said
        beyond = slurm.judge(job_of(plan), f"--gpus-per-node={gpus + 1}")
        assert beyond[0] != 0, beyond


def dealt(spec: dict[str, object], hosts: int, racks: int) -> dict[str, object]:
    """The spec on named hosts, dealt to the racks in turn."""
    names = [[f"n{number + 1}" for number in range(rack, hosts, racks)] for rack in range(racks)]
    named = [{"name": f"rack{i}", "nodes": ",".join(some)} for i, some in enumerate(names) if some]
    cluster = spec["cluster"]
    assert isinstance(cluster, dict)
    return {**spec, "cluster": {"node": cluster["node"], "racks": named}}


def test_the_jobs_of_random_plans_could_run(tmp_path: Path) -> None:
    """Half of them on hosts with names that take turns in two or three racks."""
    racks = {f"leaf{i}": [f"n{i * RACK + k + 1}" for k in range(RACK)] for i in range(64)}
    refused, taken = {}, 0
    with PaperSlurm(tmp_path / "slurm", racks, 8, PORT) as slurm:
        for seed in range(RANDOM):
            spec = {**legal_spec(seed), "emit": ["megatron", "slurm", "torchrun"]}
            hosts = spec["cluster"]["nodes"]
            if seed % 2 and hosts > 1:
                spec = dealt(spec, hosts, 2 + seed % 4 // 2)
            status, said = slurm.judge(job_of(planned(Source("<spec>", json.dumps(spec), None))))
            taken += status == 0
            if status:
                refused[seed] = said
    assert refused == {}
    assert taken == RANDOM
