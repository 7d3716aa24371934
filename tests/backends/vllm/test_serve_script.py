"""Tests that run ``vllm/serve.sh`` with a stub of vllm on PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parc.backends.shared.serving.serve_script import HostAddress
from parc.backends.vllm.backend import BACKEND
from parc.backends.vllm.processes import plan_processes
from parc.compiler.ir import ServingPlan
from tests.search.serving_specs import plan_of, spec

pytestmark = pytest.mark.usefixtures("few_requests")

VLLM = """#!/bin/bash
line=$(printf '%s ' "$CUDA_VISIBLE_DEVICES" "$@")
printf '%s\n' "$line" >> "$STAGE/calls"  # in one write: a killed one leaves no half line
exit "${VLLM_STATUS:-0}"
"""
HOSTNAME = """#!/bin/bash
if [[ ${1:-} == -s ]]; then echo "${HOST%%.*}"; else echo "$HOST"; fi
"""
NAMED = {"node": "hgx-h200", "racks": [{"name": "a", "nodes": "h[1-2]"}]}


def served(**parts: Any) -> ServingPlan:
    """Return a plan of DeepSeek-V3 on two hosts."""
    job = {"precision": "fp8", "max_model_len": 4096}
    layout = {"tp": 8, "pp": 2, "ep": "off", "replicas": 1}
    return plan_of(spec("deepseek-v3", "hgx-h200", 2, job=job, layout=layout) | parts)


class Stage:
    """Folder with the script and stubs of the programs that it calls."""

    def __init__(self, root: Path, plan: ServingPlan) -> None:
        self.root = root
        for name, text in (("vllm", VLLM), ("hostname", HOSTNAME)):
            (root / name).write_text(text, encoding="utf-8")
            (root / name).chmod(0o755)
        (root / "serve.sh").write_text(BACKEND.emit_serving(plan)[0].text, encoding="utf-8")

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.root}:{os.environ['PATH']}", "STAGE": str(self.root)}
        command = ["bash", str(self.root / "serve.sh"), *words]
        return subprocess.run(
            command, env=environment | env, capture_output=True, text=True, check=False, timeout=300
        )

    def calls(self) -> list[str]:
        """Return the devices and arguments of each call of vllm."""
        path = self.root / "calls"
        return sorted(path.read_text("utf-8").split("\n"))[1:] if path.exists() else []


def test_a_named_host_finds_its_rank_and_the_address_of_the_head(tmp_path: Path) -> None:
    stage = Stage(tmp_path, served(cluster=NAMED))
    done = stage.run("--seed", "7", HOST="h2.cluster.local")
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls()
    assert call.startswith("0,1,2,3,4,5,6,7 serve /models/own ")
    assert "--node-rank 1 --master-addr h1 " in call
    assert call.endswith("--headless --seed 7 ")


def test_without_host_names_parc_hosts_is_required_and_sets_the_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path, served())
    assert "NODE_RANK" in stage.run().stderr
    assert "PARC_HOSTS" in stage.run(NODE_RANK="1").stderr
    assert stage.run(NODE_RANK="1", PARC_HOSTS="x9 x4").returncode == 0
    assert "--master-addr x9 " in stage.calls()[0]


@pytest.mark.parametrize("env", [{"NODE_RANK": "2"}, {"NODE_RANK": "-1"}, {"HOST": "elsewhere"}])
def test_a_host_outside_the_plan_starts_no_process(tmp_path: Path, env: Any) -> None:
    stage = Stage(tmp_path, served(cluster=NAMED))
    done = stage.run(**env)
    assert done.returncode == 2
    assert stage.calls() == []


def test_a_host_of_the_plan_rejects_the_node_rank_of_another_host(tmp_path: Path) -> None:
    stage = Stage(tmp_path, served(cluster=NAMED))
    done = stage.run(HOST="h2", NODE_RANK="0")
    assert done.returncode == 2
    assert "NODE_RANK is '0', but h2 has node rank 1 in h1 h2" in done.stderr
    assert stage.calls() == []
    # pods and containers have other host names; a requeued job passes its hosts in PARC_HOSTS
    assert stage.run(HOST="pod-7", NODE_RANK="0").returncode == 0
    assert stage.run(HOST="h2", NODE_RANK="0", PARC_HOSTS="h2 h9").returncode == 0


def test_each_engine_of_a_pool_offers_its_cache_at_another_port_of_its_host(tmp_path: Path) -> None:
    layout = {"tp": 2, "replicas": 4}
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", job={"pool": "prefill"}, layout=layout))
    stage = Stage(tmp_path, plan)
    where = '"$VLLM_NIXL_SIDE_CHANNEL_HOST:$VLLM_NIXL_SIDE_CHANNEL_PORT"'
    # The first engine that ends stops the others, so each one waits for them to start.
    program = VLLM.replace("%s ' ", f"%s ' {where} ").replace("exit", "sleep 1; exit")
    (tmp_path / "vllm").write_text(program, encoding="utf-8")
    (tmp_path / "hostname").write_text("#!/bin/bash\necho 10.0.0.7 172.17.0.1\n", encoding="utf-8")
    assert stage.run().returncode == 0
    places = [call.split()[:2] for call in stage.calls()]
    assert places == [
        [f"10.0.0.7:{5600 + 100 * slot}", f"{2 * slot},{2 * slot + 1}"] for slot in range(4)
    ]


def test_a_host_with_several_engines_stops_all_when_the_first_ends(
    tmp_path: Path,
) -> None:
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", layout={"tp": 4, "replicas": 2}))
    stage = Stage(tmp_path, plan)
    assert stage.run(VLLM_STATUS="9").returncode == 9
    # the first engine that ends may stop the other one before it has started
    devices = {call.split(" ")[0] for call in stage.calls()}
    assert devices
    assert devices <= {"0,1,2,3", "4,5,6,7"}


def test_the_script_passes_each_process_exactly_its_planned_flags(tmp_path: Path) -> None:
    job = {"precision": "fp8", "max_model_len": 4096}
    layout = {"dp": 16, "tp": 1, "ep": "on", "replicas": 1}
    plan = plan_of(spec("deepseek-v3", "hgx-h200", 2, job=job, layout=layout))
    for process in plan_processes(plan):
        stage_root = tmp_path / str(process.node)
        stage_root.mkdir()
        stage = Stage(stage_root, plan)
        stage.run(NODE_RANK=str(process.node), PARC_HOSTS="a b")
        (call,) = stage.calls()
        words = []
        for name, value in process.flags:
            shown = "ab"[value.node] if isinstance(value, HostAddress) else value
            words += [name] if value is None else [name, str(shown)]
        assert call.rstrip().endswith(" ".join(words))


def test_user_arguments_and_variables_are_quoted(tmp_path: Path) -> None:
    launch = {"args": ["--chat-template", "a b's $(x)"], "env": {"KEY": "c d"}}
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", layout={"tp": 8}) | {"launch": launch})
    stage = Stage(tmp_path, plan)
    assert stage.run().returncode == 0
    assert "--chat-template a b's $(x) " in stage.calls()[0]
    assert "export KEY='c d'" in BACKEND.emit_serving(plan)[0].text


def test_a_line_break_in_a_checkpoint_name_executes_no_command(tmp_path: Path) -> None:
    job = {"checkpoint": f"a\ntouch {tmp_path}/pwned\nb"}
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", job=job, layout={"tp": 8}))
    assert Stage(tmp_path, plan).run().returncode == 0
    assert not (tmp_path / "pwned").exists()
