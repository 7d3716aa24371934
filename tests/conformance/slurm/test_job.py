"""A real Slurm runs the emitted script and gives each node the node rank of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parc.backends.registry import backend
from parc.compiler.ir import Plan
from tests.backends.plans import (
    HOSTILE,
    named_plan,
    nameless_plan,
    with_launch,
    with_names,
    with_slurm,
)
from tests.compiled import write_files
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
    write_files(files, work, executable=True)
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


def test_the_directives_of_a_site_reach_the_controller(cluster: SlurmCluster) -> None:
    plan = with_slurm(
        nameless_plan(4),
        constraint="fast&gpu",
        exclude="n[1,2]",
        nodelist="n8",
        comment='$(touch pwned) "x" # y',
        mail_user="user@localhost",
        mail_type="END,FAIL",
        extra=("--nice=7", "--licenses=compiler:1"),
        time_limit=TIME_LIMIT,
    )
    work = emit(plan, cluster, "site")
    output, status = submit(cluster, work)
    assert status == "0", output
    ranks = node_ranks(work)
    assert len(ranks) == 4
    assert "n8" in ranks
    assert not {"n1", "n2"} & set(ranks)
    job = next(work.glob("tiny.*.out")).name.split(".")[1]
    shown = cluster.run("scontrol", "show", "job", job)
    for text in ("Features=fast&gpu", "ExcNodeList=n[1-2]", "Licenses=compiler:1", "Nice=7"):
        assert text in shown
    assert 'Comment=$(touch pwned) "x" # y' in shown
    assert "MailUser=user@localhost" in shown
    assert "END" in shown.partition("MailType=")[2].partition("\n")[0]
    assert not list(cluster.root.rglob("pwned"))


def test_an_impossible_constraint_is_rejected(cluster: SlurmCluster) -> None:
    plan = with_slurm(nameless_plan(2, 2), constraint="slow", time_limit=TIME_LIMIT)
    output = cluster.run("sbatch", "out/slurm/job.sbatch", cwd=emit(plan, cluster, "impossible"))
    assert "Invalid feature specification" in output


def test_all_tasks_of_an_array_start_outside_of_the_output_folder(cluster: SlurmCluster) -> None:
    plan = on_hosts(named_plan(), "n1", "n3", "n2", "n4")
    work = emit(with_slurm(plan, array="1-3%1"), cluster, "array")
    job = start_job(cluster, work)
    ended = 'until [[ -z $(squeue --noheader --jobs="$1") ]]; do sleep 0.3; done'
    cluster.run("bash", "-c", ended, "_", job)
    outputs = {path.name: path.read_text() for path in work.glob("*.out")}
    assert set(outputs) == {f"tiny.{job}_{task}.out" for task in (1, 2, 3)}
    assert all("exit 0" in text for text in outputs.values()), outputs
    # Each task of the array has logs of its own.
    assert len(list(work.glob("logs/*.log"))) == 12


def test_set_up_commands_and_inherited_values_reach_each_host(cluster: SlurmCluster) -> None:
    plan = on_hosts(named_plan(), "n1", "n3", "n2", "n4")
    lines = ('echo "setup $NODE_RANK $SLURMD_NODENAME" >> "$SLURM_SUBMIT_DIR/setup"', "export A=b")
    plan = with_launch(plan, setup=(*lines, 'echo "$KEY" >> keys'), env_inherited=("KEY",))
    work = emit(plan, cluster, "setup")
    output, status = submit(cluster, work, KEY=HOSTILE)
    assert status == "0", output
    found = sorted((work / "setup").read_text().splitlines())
    assert found == ["setup 0 n1", "setup 1 n3", "setup 2 n2", "setup 3 n4"]
    assert (work / "keys").read_text().splitlines() == [HOSTILE] * 4
    assert not list(cluster.root.rglob("pwned"))


def test_a_job_without_an_inherited_value_stops_before_any_step(cluster: SlurmCluster) -> None:
    plan = on_hosts(named_plan(), "n1", "n3", "n2", "n4")
    work = emit(with_launch(plan, env_inherited=("KEY",)), cluster, "unset")
    output, status = submit(cluster, work)
    assert status == "3"
    assert "KEY is not set" in output
    assert node_ranks(work) == {}


LEFT_OVER = {
    **{"SLURM_GPUS": "1", "SLURM_GRES": "gpu:1", "SLURM_GPUS_PER_TASK": "1"},
    **{"SLURM_GPUS_PER_SOCKET": "1", "SLURM_STEP_GRES": "gpu:1", "SLURM_GPU_BIND": "single:1"},
    **{"SLURM_GPUS_PER_NODE": "1", "SLURM_NTASKS_PER_NODE": "8", "SLURM_NTASKS": "32"},
    **{"SLURM_NTASKS_PER_GPU": "1", "SLURM_NTASKS_PER_SOCKET": "1", "SLURM_NTASKS_PER_CORE": "1"},
    **{"SLURM_DISTRIBUTION": "cyclic", "SLURM_CPU_BIND": "map_cpu:0", "SLURM_EXCLUSIVE": "1"},
    **{"SLURM_CPUS_PER_GPU": "1", "SLURM_MEM_PER_CPU": "1", "SLURM_MEM_PER_GPU": "1"},
    **{"SLURM_HINT": "nomultithread", "SLURM_THREADS_PER_CORE": "1", "SLURM_LABELIO": "1"},
    **{"SLURM_STDOUTMODE": "none", "SLURM_EXPORT_ENV": "NONE", "SLURM_TIMELIMIT": "1"},
    **{"SLURM_CONSTRAINT": "slow", "SLURM_SPREAD_JOB": "1", "SLURM_USE_MIN_NODES": "1"},
    **{"SLURM_TEST_EXEC": "1", "SLURM_WORKING_DIR": "/", "SLURM_CORE_SPEC": "1"},
}
"""Variables of an interactive job, in whose shell somebody submits."""


@pytest.mark.parametrize("name", [*LEFT_OVER, "all"])
def test_variables_of_the_submitting_shell_change_nothing(cluster: SlurmCluster, name: str) -> None:
    work = emit(on_hosts(named_plan(), "n5", "n1", "n8", "n2"), cluster, f"left-{name}")
    (work / "bin/torchrun").write_text('#!/bin/bash\necho "gpus $CUDA_VISIBLE_DEVICES"\n')
    given = LEFT_OVER if name == "all" else {name: LEFT_OVER[name]}
    output, status = submit(cluster, work, **given)
    assert status == "0", output
    logs = [path.read_text() for path in work.glob("logs/*.log")]
    assert len(logs) == 4
    assert all("gpus 0,1,2,3,4,5,6,7\n" in log for log in logs), logs
