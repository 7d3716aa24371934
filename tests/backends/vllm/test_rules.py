"""Tests of vLLM's rules, each with an invalid and a valid spec that differ in little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parc.backends.vllm.defaults import default_batch
from tests.hybrid_models import NEMOTRON_NANO, QWEN3_NEXT
from tests.search.serving_specs import codes, problem_of, spec

pytestmark = pytest.mark.usefixtures("few_requests")

FP8 = {"precision": "fp8", "max_model_len": 4096}
Q30 = ("qwen3-30b-a3b", "dgx-h100", 1, {})
V3 = ("deepseek-v3", "hgx-h200", 4, {"job": FP8})
L8 = ("llama-3.1-8b", "dgx-h100", 1, {})
LOCAL = {"job": {"checkpoint": "/models/hybrid", "max_model_len": 4096}}
NEXT = (QWEN3_NEXT, "hgx-h100", 4, LOCAL)
NARROW = {
    **QWEN3_NEXT,
    "linear_attention": {**QWEN3_NEXT["linear_attention"], "key_dim": 64},
    "experts": {**QWEN3_NEXT["experts"], "shared_size": 2048},
}
FP8_LOCAL = {"job": {**FP8, "checkpoint": "/models/hybrid"}}
NANO = (NEMOTRON_NANO, "hgx-h100", 2, LOCAL)
L70 = ("llama-3.1-70b", "dgx-h100", 2, {})
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ("D01", L8, {"tp": 3}, {"tp": 4}),
    ("D02", ("qwen2.5-7b", "dgx-h100", 1, {}), {"tp": 14}, {"tp": 4}),
    ("D06", V3, {"tp": 1, "dp": 24, "replicas": 1, "ep": "off"}, {"tp": 1, "dp": 24, "ep": "on"}),
    ("V07", (*Q30[:3], {"job": FP8}), {"tp": 4, "ep": "off"}, {"tp": 4, "ep": "on"}),
    ("V07", (NARROW, *NEXT[1:3], FP8_LOCAL), {"tp": 16, "ep": "on"}, {"tp": 8, "ep": "on"}),
    ("V05", V3, {"tp": 8, "pp": 1, "dp": 5, "ep": "on"}, {"tp": 8, "pp": 1, "dp": 4, "ep": "on"}),
    ("M01", L8, {"ep": "on"}, {"ep": "off"}),
    ("M01", L8, {"ep": 4}, {"ep": 1}),
    ("V11", L8, {"dp": 2}, {"replicas": 2}),
    ("M09", Q30, {"tp": 4, "dp": 2, "ep": 2}, {"tp": 4, "dp": 2, "ep": 8}),
    ("V21", Q30, {"tp": 1, "dp": 1, "ep": "on"}, {"tp": 2, "dp": 1, "ep": "on"}),
    (
        "D08",
        Q30,
        {"tp": 4, "dp": 2, "redundant_experts": 3},
        {"tp": 4, "dp": 2, "redundant_experts": 8},
    ),
    ("M10", Q30, {"tp": 4, "redundant_experts": -8}, {"tp": 4, "redundant_experts": 0}),
    (
        "V23",
        Q30,
        {"tp": 8, "dp": 1, "ep": "on", "all2all": "deepep_high_throughput"},
        {"tp": 4, "dp": 2, "ep": "on", "all2all": "deepep_high_throughput"},
    ),
    ("V27", L8, {"pp": 33}, {"pp": 8}),
    ("V27", NANO, {"pp": 2, "stage_layers": [1, 51]}, {"pp": 2, "stage_layers": [2, 50]}),
    ("P01", L8, {"pp": 2, "stage_layers": [16, 15]}, {"pp": 2, "stage_layers": [17, 15]}),
    ("P01", L8, {"pp": 4, "stage_layers": [16, 16]}, {"stage_layers": [16, 16]}),
    ("V12", V3, {"tp": 8, "dcp": 3}, {"tp": 8, "dcp": 4}),
    ("V12", L70, {"tp": 8, "dcp": 2}, {"tp": 8, "dcp": 1}),
    ("V12", L70, {"tp": 16, "dcp": 4}, {"tp": 16, "dcp": 2}),
    ("V12", V3, {"tp": 4, "pcp": 2, "dcp": 4}, {"tp": 4, "pcp": 1, "dcp": 4}),
    ("V12", V3, {"tp": 4, "pcp": 2, "dcp": 8}, {"tp": 4, "pcp": 2, "dcp": 1}),
    ("V12", L70, {"tp": 4, "pcp": 2}, {"tp": 4, "pcp": 1}),
    ("D18", NEXT, {"tp": 32, "dp": 1, "ep": "on"}, {"tp": 16, "dp": 2, "ep": "on"}),
    ("D18", NANO, {"tp": 16, "dp": 1, "ep": "on"}, {"tp": 8, "dp": 2, "ep": "on"}),
    ("T11", L8, {"tp": 8, "replicas": 2}, {"tp": 4, "replicas": 2}),
]


@pytest.mark.parametrize(
    ("code", "given", "bad", "good"), CASES, ids=[f"{n} {row[0]}" for n, row in enumerate(CASES)]
)
def test_a_rule_rejects_the_bad_and_accepts_the_good_layout(
    code: str, given: tuple[Any, ...], bad: dict[str, Any], good: dict[str, Any]
) -> None:
    model, node, nodes, parts = given
    assert code in codes(spec(model, node, nodes, **parts, layout=bad))
    fine = spec(model, node, nodes, **parts, layout=good)
    assert not {found for found in codes(fine)} & {row[0] for row in CASES}


def test_fp8_mamba_models_have_one_scale_per_tensor_and_no_blocks_to_split() -> None:
    layout = {"tp": 4, "dp": 1, "ep": "off"}
    assert codes(spec(NEMOTRON_NANO, "hgx-h200", 1, **FP8_LOCAL, layout=layout)) == []


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--no-such-flag"], "F01"),
        (["stray"], "F01"),
        (["--tensor-parallel-size", "4"], "F02"),
        (["-tp", "4"], "F02"),
        (["--tensor_parallel_size=4"], "F02"),
        (["--no-enable-expert-parallel"], "F02"),
        (["--headless"], "F02"),
        (["--seed", "x"], "F03"),
        (["--seed"], "F03"),
        (["--enable-log-requests", "yes"], "F03"),
        (["--enable-prefix-caching"], "F02"),
        (["--seed", "1", "--seed", "2"], "F02"),
        (["--enforce-eager"], "V43"),
    ],
)
def test_arguments_that_contradict_vllm_or_the_plan_are_rejected(
    args: list[str], code: str
) -> None:
    tree = spec("llama-3.1-8b", "dgx-h100", layout={"tp": 8}) | {"launch": {"args": args}}
    assert codes(tree) == [code]


def test_unchunked_prompts_must_fit_in_a_step_and_are_not_estimated() -> None:
    launch = {"launch": {"args": ["--no-enable-chunked-prefill"]}}
    found = codes(spec("llama-3.1-8b", "dgx-h100", layout={"tp": 8}) | launch)
    assert sorted(found) == ["V04", "V43"]


def test_an_api_server_count_is_rejected_if_hosts_are_headless() -> None:
    launch = {"launch": {"args": ["--api-server-count", "4"]}}
    layout = {"tp": 8, "pp": 2, "replicas": 1}
    assert codes(spec("llama-3.1-405b", "hgx-h100", 2, layout=layout) | launch) == ["F03"]
    assert codes(spec("llama-3.1-8b", "dgx-h100", layout={"tp": 8}) | launch) == []


@pytest.mark.parametrize(
    "args", [["--seed", "7"], ["--trust-remote-code"], ["--served-model-name", "a", "b"], []]
)
def test_arguments_that_the_plan_does_not_set_are_accepted(args: list[str]) -> None:
    tree = spec("llama-3.1-8b", "dgx-h100", layout={"tp": 8}) | {"launch": {"args": args}}
    assert codes(tree) == []


def test_a_model_with_code_in_its_checkpoint_needs_trust_remote_code() -> None:
    job = {"checkpoint": "inclusionAI/Ling-lite-1.5", "max_model_len": 4096}
    given = {"model": "ling-lite-1.5", "node": "dgx-h100", "nodes": 1, "layout": {"tp": 4}}
    assert "V31" in codes(spec(**given, job=job))
    trusting = {"args": ["--trust-remote-code"]}
    assert "V31" not in codes(spec(**given, job=job, launch=trusting))


@pytest.mark.parametrize(
    ("gpu", "gib", "limits"),
    [
        ("h100-sxm-80gb", 69.99, (256, 2048)),
        ("h100-sxm-80gb", 70, (1024, 8192)),
        ("h100-sxm-80gb", 159.99, (1024, 8192)),
        ("h100-sxm-80gb", 160, (1024, 16384)),
        ("a100-sxm-80gb", 80, (256, 2048)),
    ],
)
def test_the_default_limits_of_a_server_follow_from_the_memory_of_the_gpu(
    gpu: str, gib: float, limits: tuple[int, int]
) -> None:
    known = problem_of(spec("llama-3.1-8b", "dgx-h100")).cluster.gpu
    assert default_batch(replace(known, name=gpu, memory_bytes=gib * 2**30)) == limits
