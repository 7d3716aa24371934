"""Options complete a script: with a version, model or cluster, more rules are checked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.pipeline import resolve_spec
from parc.compiler.spec.reading.source import SpecSource
from parc.compiler.tools.lint.complete_facts import cluster_section
from parc.compiler.tools.lint.options import LintOptions
from tests.lint.scripts import DEEPSPEED, MEGATRON, VLLM, Edit, codes, edited


@pytest.mark.parametrize("version", ["abc", "0.5", "1.", "²"])
@pytest.mark.parametrize(
    "script", [MEGATRON, VLLM, DEEPSPEED], ids=["megatron", "vllm", "deepspeed"]
)
def test_an_unknown_version_is_reported(script: str, version: str) -> None:
    assert codes(script, LintOptions(version=version)) == ["X18"]


@pytest.mark.parametrize("script", [MEGATRON, VLLM], ids=["megatron", "vllm"])
def test_an_unknown_model_or_cluster_is_reported(script: str) -> None:
    assert codes(script, LintOptions(model="nonsense", cluster="nonsense")) == ["K01", "K01"]
    assert codes(script, LintOptions(model="/nowhere/config.json")) == ["K07"]


CLUSTERS: dict[str, tuple[dict[str, Any], LintOptions, tuple[int, int]]] = {
    "a stand-in": ({}, LintOptions(), (1, 8)),
    "as written": ({"nodes": 4, "node": {"gpus_per_node": 4}}, LintOptions(), (4, 4)),
    "a part of a host": ({}, LintOptions(cluster="dgx-h100", gpus=13), (13, 1)),
    "half a host": ({}, LintOptions(cluster="dgx-h100", gpus=4), (1, 4)),
    "hosts of four": ({}, LintOptions(cluster="gb200-nvl72", gpus=64), (16, 4)),
    "a cluster": ({}, LintOptions(cluster="eos"), (576, 8)),
    "GPUs of a cluster": ({}, LintOptions(cluster="gb200-nvl72-8", gpus=64), (16, 4)),
    "hosts of a cluster": ({"nodes": 4}, LintOptions(cluster="eos"), (4, 8)),
    "parts of its hosts": (
        {"nodes": 4, "node": {"gpus_per_node": 2}},
        LintOptions(cluster="eos"),
        (4, 2),
    ),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_hosts_are_the_written_ones_or_as_many_as_the_gpus_need(name: str) -> None:
    written, options, hosts = CLUSTERS[name]
    tree = {
        **{
            "parc": 1,
            "name": "x",
            "model": "gpt2-small",
            "cluster": cluster_section(written, options),
        },
        "job": {"sequence_length": 8, "global_batch": 8},
    }
    problem = resolve_spec(SpecSource("x", json.dumps(tree), None), (), Sink())
    assert problem is not None
    assert (problem.cluster.nodes, problem.cluster.node.gpus) == hosts


SMALL = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --max-model-len 32768"
H100 = LintOptions(cluster="dgx-h100", gpus=8)
MEMORY: dict[str, tuple[Edit, LintOptions, list[str]]] = {
    "it fits": (("-tp 4", "-tp 8"), H100, []),
    "it leaves GPUs idle": (("-tp 4", "-tp 4"), H100, ["T15"]),
    "the GPU is unknown": (("-tp 4", "-tp 1"), LintOptions(), []),
    "weights do not fit": (("-tp 4", "-tp 1"), H100, ["V02"]),
    "a request does not fit": (("-tp 4 --max-model-len 32768", "-tp 2 -pp 1"), H100, ["V01"]),
    "a smaller share of memory": (("-tp 4", "-tp 2 --gpu-memory-utilization 0.5"), H100, ["V02"]),
    "eight bits fit": (
        ("-tp 4", "-tp 1 -pp 2 --quantization fp8 --kv-cache-dtype fp8"),
        H100,
        ["T15"],
    ),
    "an eight-bit checkpoint": (("Instruct -tp 4", "Instruct-FP8 -tp 2"), H100, ["T15"]),
    "scales may not be blocks": (
        ("Llama-3.1-70B-Instruct -tp 4 --max-model-len 32768", "Llama-2-7b-FP8 -tp 16"),
        LintOptions(),
        [],
    ),
    "a checkpoint of another format": (("Instruct -tp 4", "Instruct-AWQ -tp 1"), H100, []),
    "weights are offloaded to the host": (("-tp 4", "-tp 1 --cpu-offload-gb 100"), H100, []),
    "a number is computed at run time": (("32768", "$LENGTH -tp 4"), H100, []),
    "longer than the model": (("32768", "262144"), H100, ["V24"]),
    "longer than the model, on purpose": (
        ("vllm", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm"),
        H100,
        ["T15"],
    ),
    "more GPUs than there are": (("-tp 4", "-tp 16"), H100, ["V05"]),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_and_hosts_of_a_server_are_checked_if_enough_is_known(name: str) -> None:
    edit, options, expected = MEMORY[name]
    assert codes(edited(SMALL, (edit,)), options) == expected
