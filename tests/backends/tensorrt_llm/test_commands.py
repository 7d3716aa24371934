"""Tests of the flags, config.yaml and start script of TensorRT-LLM."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.serving.serve_script import HostAddress
from parc.backends.tensorrt_llm.arguments import (
    PACKAGE,
    config_settings,
    planned_flags,
    shared_arguments,
)
from parc.backends.tensorrt_llm.backend import BACKEND, VERSIONS
from parc.backends.tensorrt_llm.processes import plan_processes
from parc.compiler.ir import ServingPlan
from tests.search.serving_specs import plan_of, spec

FP8 = {"precision": "fp8", "max_model_len": 4096, "block_tokens": 32}
MPI_FLAGS = {"--nnodes", "--node_rank", "--head"}


def plan(layout: dict[str, Any], nodes: int, version: str = "1.2.1", **parts: Any) -> ServingPlan:
    """Return the plan of DeepSeek-V3 with ``layout``; one engine unless given."""
    node, job = parts.pop("node", "hgx-h200"), FP8 | parts.pop("job", {})
    tree = spec("deepseek-v3", node, nodes, job=job, layout={"replicas": 1, **layout})
    return plan_of(tree | {"emit": ["tensorrt-llm"], "versions": {"tensorrt-llm": version}} | parts)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_every_flag_of_the_table(version: str) -> None:
    assert planned_flags() - MPI_FLAGS <= rows_of_known_flags(PACKAGE, version).keys()


def test_the_first_host_of_an_engine_serves_and_all_its_hosts_name_it() -> None:
    found = plan({"tp": 8, "pp": 2, "replicas": 2, "dp": 1, "ep": "off"}, 4)
    second = [dict(one.flags) for one in plan_processes(found) if one.replica == 1]
    assert second == [
        {"--port": 8000, "--nnodes": 2, "--node_rank": 0, "--head": HostAddress(2)},
        {"--nnodes": 2, "--node_rank": 1, "--head": HostAddress(2)},
    ]
    assert BACKEND.api_ports(found) == ((0, 8000), (2, 8000))


def test_attention_data_parallel_ranks_are_the_ranks_of_a_stage() -> None:
    found = plan({"tp": 1, "dp": 8, "ep": "on"}, 1, job={"max_num_seqs": 64})
    flags = {one.flag: one.value for one in shared_arguments(found)}
    assert (flags["--tp_size"], flags["--ep_size"], flags["--max_batch_size"]) == ("8", "8", "64")
    settings = config_settings(found)
    assert settings["enable_attention_dp"] is True
    assert settings["cuda_graph_config.max_batch_size"] == 64
    assert "hosts" not in {one.group for one in shared_arguments(found)}


def test_a_plan_without_data_parallelism_does_not_set_it() -> None:
    assert "enable_attention_dp" not in config_settings(plan({"tp": 8, "dp": 1, "ep": "off"}, 1))


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("1.0.0", set()),
        ("1.1.0", {"kv_cache_config.tokens_per_block"}),
        ("1.2.0", {"kv_cache_config.tokens_per_block", "pp_partition"}),
    ],
)
def test_keys_are_written_for_the_versions_that_have_them(version: str, keys: set[str]) -> None:
    stages = {"stage_layers": [31, 30]} if version != "1.2.0" else {"stage_layers": [30, 31]}
    found = plan({"tp": 8, "pp": 2, "dp": 1, "ep": "off", **stages}, 2, version)
    both = {"kv_cache_config.tokens_per_block", "pp_partition"}
    assert config_settings(found).keys() & both == keys


def test_experts_with_fp8_blocks_use_deepgemm_on_blackwell_only() -> None:
    layout = {"tp": 8, "dp": 1, "ep": "off"}
    assert "moe_config.backend" not in config_settings(plan(layout, 1))
    blackwell = config_settings(plan(layout, 1, node="dgx-b200"))
    assert blackwell["moe_config.backend"] == "DEEPGEMM"


def test_the_network_interface_reaches_mpi() -> None:
    found = plan({"tp": 8, "dp": 1, "ep": "off"}, 1, launch={"network_interface": "eth7"})
    names = {name: value for name, value, _ in BACKEND.environment(found)}
    assert names["OMPI_MCA_btl_tcp_if_include"] == "eth7"


def run_script(tmp_path: Path, found: ServingPlan, environment: dict[str, str]) -> list[str]:
    """Run serve.sh with programs that print their names and arguments; return the lines."""
    for artifact in BACKEND.emit_serving(found):
        path = tmp_path / artifact.path
        path.parent.mkdir(exist_ok=True)
        path.write_text(artifact.text, encoding="utf-8")
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name in ("trtllm-serve", "mpirun", "srun", "sleep"):
        text = (
            f'#!/bin/bash\necho {name} "$@" GPUS=$CUDA_VISIBLE_DEVICES JOB=${{SLURM_JOB_ID:-}}\n'
            'if [[ -n ${SLURM_HOSTFILE:-} ]]; then tr "\\n" " " < "$SLURM_HOSTFILE"; fi\n'
        )
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    ran = subprocess.run(
        ["bash", str(tmp_path / "tensorrt-llm/serve.sh")],
        env={"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(tmp_path), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_an_engine_within_a_host_starts_without_the_variables_of_slurm(tmp_path: Path) -> None:
    found = plan({"tp": 8, "dp": 1, "ep": "off"}, 1, launch={"args": ["--log_level", "error"]})
    (line,) = run_script(tmp_path, found, {"SLURM_JOB_ID": "7", "PMIX_RANK": "0"})
    assert line.startswith("trtllm-serve serve /models/own --tp_size 8 --pp_size 1 ")
    config = tmp_path / "tensorrt-llm/config.yaml"
    assert line.endswith(
        f"--log_level error --port 8000 --extra_llm_api_options {config} GPUS=0,1,2,3,4,5,6,7 JOB="
    )


def test_mpirun_starts_an_engine_on_several_hosts_from_its_first_host(tmp_path: Path) -> None:
    found = plan({"tp": 8, "pp": 2, "replicas": 2, "dp": 1, "ep": "off"}, 4)
    hosts = {"PARC_HOSTS": "n0 n1 n2 n3", "SECRET": "x"}
    (line,) = run_script(tmp_path, found, {**hosts, "NODE_RANK": "2"})
    assert line.startswith("mpirun -np 16 --host n2:8,n3:8 --map-by slot ")
    assert " -x SECRET " in line
    assert " trtllm-llmapi-launch trtllm-serve serve /models/own --tp_size 8 " in line
    assert "--nnodes" not in line
    *_, last = run_script(tmp_path, found, {**hosts, "NODE_RANK": "3"})
    assert last.startswith("sleep infinity")


def test_srun_starts_the_ranks_in_the_order_of_the_plan(tmp_path: Path) -> None:
    found = plan({"tp": 8, "pp": 2, "dp": 1, "ep": "off"}, 2)
    slurm = {
        "SLURM_JOB_ID": "7",
        "NODE_RANK": "0",
        "PARC_HOSTS": "z a",
        "SLURM_NTASKS_PER_NODE": "1",
    }
    line, order = run_script(tmp_path, found, slurm)
    assert line.startswith(
        "srun --overlap --mpi=pmix --distribution=arbitrary --nodes=2 --ntasks=16"
    )
    assert order.split() == ["z"] * 8 + ["a"] * 8
