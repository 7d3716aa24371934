"""The preflight program, started for real: ranks as planned, and two hosts swapped."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from parc.backends.preflight.backend import BACKEND
from parc.compiler.ir import Plan
from tests.backends.plans import launch_plan
from tests.conformance.real_runs import LONGEST_SECONDS, end, environment
from tests.conformance.tool_checkers import tool_python
from tests.placement.placement_plans import NODE, cluster, layout, plan

pytestmark = pytest.mark.conformance


def small_plan() -> Plan:
    """Return a plan for two hosts of two ranks: tp within a host, dp across hosts."""
    on = cluster(1, 1, node=replace(NODE, gpus=2, nvlink_domain=2))
    made = plan(on, layout(tp=2, dp=2))
    return replace(launch_plan(on), placement=made.placement, layout=made.layout)


def run_preflight(folder: Path, hosts: tuple[str, ...]) -> tuple[list[int], str]:
    """Return (exit statuses, output of the first agent) of one launch agent per node rank, each
    with its host name.
    """
    for artifact in BACKEND.emit(small_plan()):
        target = folder / artifact.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(artifact.text)
    python, shared = tool_python("torch"), environment()
    agents = []
    try:
        for node, host in enumerate(hosts):
            command = [python, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
            command += [f"--node-rank={node}", "--master-addr=127.0.0.1"]
            command += [f"--master-port={shared['MASTER_PORT']}"]
            command += [str(folder / "preflight" / "check_ranks.py"), "--probe=1"]
            agents.append(
                subprocess.Popen(
                    command,
                    env=shared | {"SLURMD_NODENAME": host},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            )
        output = [agent.communicate(timeout=LONGEST_SECONDS)[0] for agent in agents]
    finally:
        for agent in agents:
            end(agent)
    return [agent.returncode for agent in agents], output[0]


def planned_hosts() -> tuple[str, ...]:
    (expected,) = (one for one in BACKEND.emit(small_plan()) if one.path.endswith(".json"))
    return tuple(json.loads(expected.text)["hosts"])


def test_ranks_on_their_planned_hosts_pass_and_every_group_is_timed(tmp_path: Path) -> None:
    statuses, output = run_preflight(tmp_path, planned_hosts())
    assert statuses == [0, 0], output
    assert "4 ranks on 2 hosts match the plan" in output
    assert "tp: 2 groups" in output


def test_swapped_hosts_stop_the_job_with_a_table(tmp_path: Path) -> None:
    first, second = planned_hosts()
    statuses, output = run_preflight(tmp_path, (second, first))
    assert all(statuses), output
    assert f"rank 0: host {second}, planned {first}" in output
