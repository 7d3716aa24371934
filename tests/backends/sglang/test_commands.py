"""Tests of SGLang's commands per host, and of the flags that all processes share."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from parc.backends.sglang.arguments import PACKAGE, planned_flags, shared_arguments
from parc.backends.sglang.backend import BACKEND
from parc.backends.sglang.processes import plan_processes
from parc.backends.shared.extra_arguments import rows_of_known_flags
from parc.backends.shared.serving.serve_script import HostAddress
from parc.compiler.ir import ServingPlan
from tests.cli.specs import parc
from tests.search.serving_specs import plan_of, spec

FP8 = {"precision": "fp8", "max_model_len": 4096}


def plan(layout: dict[str, Any], nodes: int, **job: Any) -> ServingPlan:
    """Return the plan of DeepSeek-V3 with ``layout``; one engine unless given."""
    tree = spec("deepseek-v3", "hgx-h200", nodes, job=FP8 | job, layout={"replicas": 1, **layout})
    return plan_of(tree | {"emit": ["sglang"]})


def flags_by_process(found: ServingPlan) -> list[str]:
    """Return the flags of each process as one line, with addresses as @node:port."""
    lines = []
    for process in plan_processes(found):
        words = []
        for name, value in process.flags:
            address = isinstance(value, HostAddress)
            shown = f"@{value.node}:{value.port}" if isinstance(value, HostAddress) else value
            assert address or value is not None
            words.append(f"{name.removeprefix('--')}={shown}")
        lines.append(" ".join(words))
    return lines


def shared(found: ServingPlan) -> dict[str, str | None]:
    """Return the flags that all processes share."""
    return {one.flag: one.value for one in shared_arguments(found)}


def test_the_parser_accepts_every_flag_of_the_table() -> None:
    assert planned_flags() <= rows_of_known_flags(PACKAGE).keys()


def test_an_engine_on_one_host_needs_only_a_port() -> None:
    assert flags_by_process(plan({"tp": 8, "dp": 1, "ep": "off"}, 1)) == ["port=8000"]


def test_hosts_of_an_engine_meet_at_the_first_one_which_serves() -> None:
    found = plan({"tp": 8, "pp": 2, "dp": 1, "ep": "off"}, 2)
    assert flags_by_process(found) == [
        "port=8000 nnodes=2 node-rank=0 dist-init-addr=@0:29501",
        "nnodes=2 node-rank=1 dist-init-addr=@0:29501",
    ]
    assert [one.ports for one in plan_processes(found)] == [(8000,), ()]


def test_engines_with_data_parallel_ranks_on_one_host_use_ports_of_their_own() -> None:
    layout = {"tp": 1, "dp": 2, "ep": "off", "replicas": 4}
    tree = spec("qwen3-30b-a3b", "hgx-h200", 1, layout=layout) | {"emit": ["sglang"]}
    assert flags_by_process(plan_of(tree)) == [
        f"port={8000 + slot} dist-init-addr=127.0.0.1:{29501 + 8 * slot}" for slot in range(4)
    ]


def test_the_tensor_parallel_size_of_sglang_includes_the_data_parallel_ranks() -> None:
    found = plan({"tp": 4, "dp": 4, "ep": "on"}, 2, max_num_seqs=64, max_num_batched_tokens=4096)
    flags = shared(found)
    assert (flags["--tp-size"], flags["--attn-dp-size"], flags["--ep-size"]) == ("16", "4", "16")
    assert flags["--enable-dp-lm-head"] is None
    # SGLang divides these by the number of data-parallel ranks
    assert (flags["--max-running-requests"], flags["--chunked-prefill-size"]) == ("256", "16384")


def test_data_parallel_ranks_are_outside_of_tensor_parallel_ranks_and_inside_of_stages() -> None:
    mesh = BACKEND.mesh(plan({"tp": 2, "dp": 4, "pp": 2, "ep": "off"}, 2).layout)
    assert mesh.groups_along("tp")[:2] == [[0, 1], [2, 3]]
    assert mesh.groups_along("dp")[0] == [0, 2, 4, 6]
    assert mesh.groups_along("pp")[0] == [0, 8]


@pytest.mark.parametrize(
    ("all2all", "backend", "mode"),
    [
        ("allgather_reducescatter", "none", None),
        ("deepep_high_throughput", "deepep", "normal"),
        ("deepep_low_latency", "deepep", "auto"),
    ],
)
def test_the_all_to_all_backend_has_sglangs_name(
    all2all: str, backend: str, mode: str | None
) -> None:
    layout = {"tp": 8, "dp": 1, "ep": "on", "all2all": all2all}
    flags = shared(plan(layout, 1, max_num_seqs=64))
    assert flags["--moe-a2a-backend"] == backend
    assert flags.get("--deepep-mode") == mode


def test_layers_per_stage_are_set_unless_they_are_those_of_sglang() -> None:
    uneven = plan({"tp": 8, "pp": 2, "dp": 1, "ep": "off", "stage_layers": [31, 30]}, 2)
    own = plan({"tp": 8, "pp": 2, "dp": 1, "ep": "off", "stage_layers": [30, 31]}, 2)
    names = {name: value for name, value, _ in BACKEND.environment(uneven)}
    assert names["SGLANG_PP_LAYER_PARTITION"] == "31,30"
    assert "SGLANG_PP_LAYER_PARTITION" not in {name for name, _, _ in BACKEND.environment(own)}


def test_a_router_is_written_for_several_engines_only() -> None:
    one = {file.path for file in BACKEND.emit_serving(plan({"tp": 8, "dp": 1, "ep": "off"}, 1))}
    assert one == {"sglang/serve.sh"}
    tree = spec("llama-3.1-8b", "hgx-h200", 2, layout={"tp": 4, "replicas": 4})
    _, router = BACKEND.emit_serving(plan_of(tree | {"emit": ["sglang"]}))
    found = re.findall(r"http://\$\{hosts\[(\d)\]\}:(\d+)", router.text)
    assert found == [("0", "8000"), ("0", "8001"), ("1", "8000"), ("1", "8001")]


def test_the_router_of_one_named_host_is_verified_without_a_rank_map(tmp_path: Path) -> None:
    cluster = {"node": "hgx-h200", "racks": [{"name": "r1", "nodes": "r1n1"}]}
    tree = spec("llama-3.1-8b", "hgx-h200", 1, layout={"tp": 4, "replicas": 2})
    file = tmp_path / "spec.yaml"
    file.write_text(json.dumps(tree | {"emit": ["sglang"], "cluster": cluster}), encoding="utf-8")
    result = parc("compile", str(file), "-o", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output


def test_the_router_passes_the_addresses_of_all_engines_and_further_arguments(
    tmp_path: Path,
) -> None:
    tree = spec("llama-3.1-8b", "hgx-h200", 1, layout={"tp": 4, "replicas": 2})
    _, router = BACKEND.emit_serving(plan_of(tree | {"emit": ["sglang"]}))
    (tmp_path / "python3").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "router.sh").write_text(router.text, encoding="utf-8")
    command = ["bash", str(tmp_path / "router.sh"), "--policy", "round_robin"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    for hosts, name in ((None, "localhost"), ("node7", "node7")):
        environment = {"PATH": path} | ({} if hosts is None else {"PARC_HOSTS": hosts})
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        words = ran.stdout.split()
        urls = [f"http://{name}:{port}" for port in (8000, 8001)]
        assert words[-4:] == [*urls, "--policy", "round_robin"]
