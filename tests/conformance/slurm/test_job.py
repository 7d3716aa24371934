"""A real Slurm runs the emitted script and gives each node the node rank of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parc.backends.registry import backend
from parc.compiler.ir import Plan
from tests.backends.plans import HOSTILE, named_plan, nameless_plan, with_names, with_slurm
from tests.conformance.slurm.jobs import TIME_LIMIT, start_job, submit, wait_for_job
from tests.conformance.slurm.private_cluster import SlurmCluster
from tests.conformance.slurm.release import choose_release, reason_to_skip

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(reason_to_skip() != "", reason=reason_to_skip() or "can run"),
]
TORCHRUN = """#!/usr/bin/env python3
import os, subprocess, sys
rank = '''
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("saved")))
print("listening", flush=True)
time.sleep(float(sys.argv[1]))
'''
worker = subprocess.Popen([sys.executable, "-c", rank, os.environ.get("NAP", "0")])
print("node", os.environ["SLURMD_NODENAME"], *sys.argv[1:6], flush=True)
sys.exit(worker.wait() or int(os.environ.get("FAIL") == os.environ["SLURM_PROCID"]) * 7)
"""


@pytest.fixture(scope="module", params=["tree", "newer tree"])
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SlurmCluster]:
    """Start eight nodes in two racks; the host names do not follow the racks."""
    racks = {"rack1": ["n1", "n3", "n5", "n7"], "rack2": ["n2", "n4", "n6", "n8"]}
    with SlurmCluster(
        tmp_path_factory.mktemp("slurm"), racks, *choose_release(request.param)
    ) as running:
        yield running


def emit(plan: Plan, cluster: SlurmCluster, name: str, words: str = "") -> Path:
    """Write the emitted files and return the folder that the job is submitted from."""
    work = cluster.root / "job" / name
    tools = {"bin/torchrun": TORCHRUN, "out/megatron/args.sh": f"MEGATRON_ARGS=({words})\n"}
    files = {"pretrain_gpt.py": "", **tools}
    for target in ("slurm", "torchrun"):
        files |= {f"out/{file.path}": file.text for file in backend(target).emit(plan)}
    for path, text in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
        (work / path).chmod(0o755)
    return work


def node_ranks(work: Path) -> dict[str, str]:
    """Return node -> node rank in the arguments of torchrun."""
    lines = [path.read_text().split("node ")[-1].split() for path in work.glob("logs/*.log")]
    return {words[0]: words[3].removeprefix("--node-rank=") for words in lines}


def on_hosts(plan: Plan, *names: str) -> Plan:
    return with_slurm(with_names(plan, *names), time_limit=TIME_LIMIT, signal_seconds=60)


def test_node_ranks_follow_the_plan_and_not_the_host_names(cluster: SlurmCluster) -> None:
    work = emit(on_hosts(named_plan(), "n5", "n1", "n8", "n2"), cluster, "named")
    output, status = submit(cluster, work)
    assert status == "0", output
    assert node_ranks(work) == {"n5": "0", "n1": "1", "n8": "2", "n2": "3"}


def test_nodes_that_slurm_chooses_are_ordered_by_rack(cluster: SlurmCluster) -> None:
    work = emit(nameless_plan(4, 4), cluster, "nameless")
    output, status = submit(cluster, work)
    assert status == "0", output
    order = sorted(node_ranks(work), key=lambda node: int(node_ranks(work)[node]))
    assert order == ["n1", "n3", "n5", "n7", "n2", "n4", "n6", "n8"]


def test_an_allocation_with_other_rack_sizes_stops_the_job(cluster: SlurmCluster) -> None:
    work = emit(nameless_plan(3, 3), cluster, "shape")
    output, status = submit(cluster, work)
    assert "the plan requires racks of 3 3 hosts" in output
    assert status == "3"
    assert node_ranks(work) == {}


def test_a_job_name_with_shell_syntax_is_not_executed(cluster: SlurmCluster) -> None:
    plan = on_hosts(named_plan(), "n1", "n3", "n2", "n4")
    work = emit(replace(plan, problem=replace(plan.problem, name=HOSTILE)), cluster, "hostile")
    submit(cluster, work)
    (log,) = work.glob("*.out")
    assert log.name.startswith(f"{HOSTILE}.")
    assert not list(work.rglob("pwned"))


def test_a_failed_rank_ends_the_job_at_once(cluster: SlurmCluster) -> None:
    work = emit(on_hosts(named_plan(), "n1", "n3", "n2", "n4"), cluster, "failure")
    output, status = submit(cluster, work, FAIL="2", NAP="1")
    assert status not in {"0", ""}
    assert "task 2: Exited with exit code 7" in output


@pytest.mark.parametrize(
    ("words", "nap", "saved"), [("--exit-signal-handler", "90", 4), ("", "5", 0)]
)
def test_the_time_limit_warning_reaches_ranks_that_handle_the_signal(
    cluster: SlurmCluster, words: str, nap: str, saved: int
) -> None:
    work = emit(on_hosts(named_plan(), "n1", "n3", "n2", "n4"), cluster, f"signal{saved}", words)
    job = start_job(cluster, work, NAP=nap)
    listening = "until [[ $(cat logs/*.log | grep -c listening) = 4 ]]; do sleep 0.1; done"
    cluster.run("bash", "-c", listening, cwd=work)
    cluster.run("scancel", "--batch", "--signal=USR1", job)
    output, status = wait_for_job(cluster, work, job)
    logs = [path.read_text() for path in work.glob("logs/*.log")]
    assert sum("saved" in log for log in logs) == saved
    assert status == "0", output
