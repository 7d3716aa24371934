"""Tests of the vllm commands per host, for each way to spread an engine and its load."""

from __future__ import annotations

from typing import Any

import pytest

from parc.backends.shared.serving.serve_script import EngineProcess, HostAddress
from parc.backends.vllm.launch_files.import_command import read_vllm_args
from parc.backends.vllm.processes import plan_processes
from parc.compiler.diagnostics import Sink
from tests.compiled import emitted
from tests.search.serving_specs import plan_of, spec

H200 = "hgx-h200"


def started(layout: dict[str, Any], nodes: int, **launch: Any) -> tuple[EngineProcess, ...]:
    """Return the processes of DeepSeek-V3 with ``layout``; ep is off unless given."""
    job = {"precision": "fp8", "max_model_len": 4096}
    tree = spec("deepseek-v3", H200, nodes, job=job, layout={"ep": "off", **layout}, launch=launch)
    return plan_processes(plan_of(tree))


def text(process: EngineProcess) -> str:
    """Return the flags as one line, with addresses as @node."""
    words = []
    for name, value in process.flags:
        shown = f"@{value.node}" if isinstance(value, HostAddress) else value
        words.append(name.removeprefix("--") + ("" if value is None else f"={shown}"))
    return " ".join(words)


def test_an_engine_on_one_host_needs_only_a_port() -> None:
    (process,) = started({"tp": 8, "replicas": 1}, 1)
    assert text(process) == "port=8000"
    assert process.devices == tuple(range(8))


def test_engines_on_one_host_use_different_gpus_and_ports() -> None:
    plan = plan_of(spec("llama-3.1-8b", "dgx-h100", 2, layout={"tp": 2, "replicas": 8}))
    running = plan_processes(plan)
    assert [(one.node, one.devices, one.ports) for one in running[:5]] == [
        (0, (0, 1), (8000,)),
        (0, (2, 3), (8001,)),
        (0, (4, 5), (8002,)),
        (0, (6, 7), (8003,)),
        (1, (0, 1), (8000,)),
    ]


def test_a_pipeline_over_hosts_has_one_head_and_headless_workers() -> None:
    first, second = started({"tp": 8, "pp": 2, "replicas": 1}, 2)
    meet = "nnodes=2 node-rank={} master-addr=@0 master-port=29501"
    assert text(first) == "port=8000 " + meet.format(0)
    assert text(second) == meet.format(1) + " headless"
    assert second.ports == ()


def test_a_second_engine_uses_its_own_head_as_master() -> None:
    running = started({"tp": 8, "pp": 2, "replicas": 2}, 4)
    assert [dict(one.flags)["--master-addr"] for one in running] == [
        HostAddress(0),
        HostAddress(0),
        HostAddress(2),
        HostAddress(2),
    ]
    assert [one.node for one in running if one.ports] == [0, 2]


def test_internal_balancing_gives_start_ranks_only_to_headless_hosts() -> None:
    head, worker = started({"dp": 16, "tp": 1, "ep": "on", "replicas": 1}, 2)
    meet = "data-parallel-size-local=8 data-parallel-address=@0 data-parallel-rpc-port=29550"
    assert text(head) == f"port=8000 {meet}"
    assert text(worker) == f"{meet} data-parallel-start-rank=8 headless"


def test_hybrid_balancing_has_an_api_server_on_every_host() -> None:
    layout = {"dp": 8, "tp": 2, "ep": "on", "replicas": 1}
    running = started(layout, 2, load_balancer="hybrid")
    assert [one.ports for one in running] == [(8000,), (8000,)]
    assert "data-parallel-hybrid-lb" in text(running[1])
    assert "data-parallel-start-rank=4" in text(running[1])
    assert "headless" not in text(running[1])


def test_external_balancing_has_one_api_server_per_rank() -> None:
    layout = {"dp": 8, "tp": 2, "ep": "on", "replicas": 1}
    _, second = started(layout, 2, load_balancer="external")
    assert second.ports == (8000, 8001, 8002, 8003)
    assert "data-parallel-multi-port-external-lb" in text(second)


@pytest.mark.parametrize("balancer", ["hybrid", "external"])
def test_with_one_rank_per_host_each_process_gets_its_rank(balancer: str) -> None:
    layout = {"dp": 2, "tp": 8, "ep": "on", "replicas": 1}
    _, second = started(layout, 2, load_balancer=balancer)
    assert "data-parallel-rank=1" in text(second)


def test_data_parallel_ranks_over_several_hosts_are_numbered_by_node_rank() -> None:
    layout = {"dp": 2, "tp": 8, "pp": 2, "ep": "on", "replicas": 1}
    running = started(layout, 4)
    assert [dict(one.flags)["--node-rank"] for one in running] == [0, 1, 2, 3]
    assert [bool(one.ports) for one in running] == [True, False, False, False]
    outside = started(layout, 4, load_balancer="external")
    assert [bool(one.ports) for one in outside] == [True, False, True, False]


def test_the_layers_per_stage_of_an_emitted_script_are_imported() -> None:
    layout = {"tp": 8, "pp": 2, "replicas": 1, "stage_layers": [30, 31]}
    tree = spec("deepseek-v3", H200, 2, job={"precision": "fp8"}, layout=layout)
    script = emitted(plan_of(tree | {"emit": ["vllm"]}))["vllm/serve.sh"]
    assert "rankmap.csv" not in script
    fragment = read_vllm_args(script, "serve.sh", Sink())
    assert fragment is not None
    assert fragment.spec["layout"]["stage_layers"] == [30, 31]
