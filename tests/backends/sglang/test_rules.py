"""Layouts and settings that PARC rejects for SGLang."""

from __future__ import annotations

from typing import Any

import pytest

from tests.search.serving_specs import codes, spec

MODELOPT = "nvidia/Llama-3.1-8B-Instruct-FP8"
FP8 = {"precision": "fp8", "max_model_len": 4096}


def found(model: str, nodes: int, layout: dict[str, Any], **parts: Any) -> list[str]:
    """Return the codes of the findings about one engine with ``layout``."""
    job = {"max_model_len": 4096, **(FP8 if model == "deepseek-v3" else {}), **parts.pop("job", {})}
    tree = spec(model, "hgx-h200", nodes, job=job, layout={"replicas": 1, **layout})
    return codes(tree | parts | {"emit": ["sglang"]})


@pytest.mark.parametrize(
    ("model", "nodes", "layout", "code"),
    [
        ("llama-3.1-70b", 1, {"tp": 5}, "D01"),
        ("qwen2.5-7b", 1, {"tp": 7}, "D02"),
        ("llama-3.1-70b", 1, {"tp": 8, "dcp": 2}, "V12"),
        ("llama-3.1-8b", 1, {"tp": 1, "dp": 8}, "V11"),
        ("mixtral-8x7b", 1, {"tp": 2, "dp": 4}, "V11"),
        ("dbrx", 1, {"tp": 4, "pp": 2}, "V27"),
        ("llama-3.1-8b", 5, {"tp": 1, "pp": 40}, "V27"),
        ("llama-3.1-70b", 1, {"tp": 4, "pp": 2, "stage_layers": [40, 30]}, "P01"),
        ("llama-3.1-70b", 1, {"tp": 8, "ep": "on"}, "M01"),
        ("qwen3-235b-a22b", 1, {"tp": 8, "dp": 1, "ep": 4}, "M09"),
        ("qwen3-235b-a22b", 1, {"tp": 8, "dp": 1, "ep": "off", "redundant_experts": 8}, "M10"),
        ("qwen3-235b-a22b", 1, {"tp": 8, "dp": 1, "ep": "on", "redundant_experts": 3}, "D08"),
        ("qwen3-30b-a3b", 1, {"tp": 1, "dp": 1, "ep": "on"}, "V21"),
        ("qwen3-235b-a22b", 1, {"tp": 8, "dp": 1, "ep": "off", "all2all": "nixl_ep"}, "V23"),
    ],
)
def test_a_layout_is_rejected(model: str, nodes: int, layout: dict[str, Any], code: str) -> None:
    assert code in found(model, nodes, layout)


def test_the_shared_expert_is_split_over_all_ranks_of_a_stage() -> None:
    # 2048 / (tp 8 x dp 4) = 64 is less than a block of 128
    assert "V07" in found("deepseek-v3", 4, {"tp": 8, "dp": 4, "ep": "on"})
    deepep = {"tp": 8, "dp": 4, "ep": "on", "all2all": "deepep_high_throughput"}
    assert "D06" not in found("deepseek-v3", 4, deepep)


def test_stages_must_fill_hosts_or_hosts_stages() -> None:
    assert "V05" in found("llama-3.1-70b", 2, {"tp": 4, "pp": 3})
    node = {"cluster": {"node": {"base": "hgx-h200", "gpus_per_node": 6}, "nodes": 4}}
    assert "V05" in found("llama-3.1-70b", 4, {"tp": 8, "pp": 3}, **node)
    assert found("llama-3.1-70b", 2, {"tp": 4, "pp": 4}) == []


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"launch": {"load_balancer": "hybrid"}}, "V09"),
        ({"launch": {"args": ["--tp", "4"]}}, "F02"),
        ({"launch": {"args": ["--enable-dp-attention"]}}, "F02"),
        ({"launch": {"args": ["--no-such-flag"]}}, "F01"),
        ({"launch": {"args": ["--hicache-ratio", "twice"]}}, "F03"),
        ({"goals": {"memory_headroom": "1%"}}, "V02"),
        ({"job": {"max_num_batched_tokens": 4100}}, "V04"),
    ],
)
def test_a_setting_is_rejected(parts: dict[str, Any], code: str) -> None:
    assert code in found("llama-3.1-8b", 1, {"tp": 1}, **parts)


def test_without_a_headroom_in_the_spec_a_small_gpu_keeps_enough_memory_free() -> None:
    small = {"cluster": {"node": {"base": "l40s-8", "gpu": "rtx-4090-24gb"}, "nodes": 1}}
    assert "V02" not in found("llama-3.1-8b", 1, {"tp": 1}, **small)
    assert "V02" in found("llama-3.1-8b", 1, {"tp": 1}, goals={"memory_headroom": "8%"}, **small)


def test_ports_that_engines_of_a_host_share_are_rejected() -> None:
    layout = {"tp": 1, "dp": 2, "ep": "off", "replicas": 4}
    launch = {"port": 29503}
    assert "L10" in found("qwen3-30b-a3b", 1, layout, launch=launch)


def test_flags_outside_the_estimate_are_accepted_and_others_reported() -> None:
    args = ["--log-level", "info", "--schedule-policy", "lpm"]
    assert found("llama-3.1-8b", 1, {"tp": 1, "replicas": 8}, launch={"args": args}) == ["V43"]


def test_ports_above_the_last_one_are_rejected() -> None:
    assert "L20" in found("llama-3.1-8b", 1, {"tp": 1, "replicas": 8}, launch={"port": 65530})


@pytest.mark.parametrize(
    ("node", "job", "code"),
    [
        ("mi300x-8", {"precision": "fp8", "checkpoint": MODELOPT}, "R03"),
        ("mi300x-8", {"precision": "fp8", "quantize": True}, ""),
        ("mi300x-8", {"precision": "fp8", "checkpoint": "amd/Llama-3.1-8B-Instruct-FP8-KV"}, ""),
        ("hgx-h200", {"precision": "fp8", "checkpoint": MODELOPT}, ""),
    ],
)
def test_amd_gpus_load_no_weights_of_modelopt(node: str, job: dict[str, Any], code: str) -> None:
    job = {"max_model_len": 4096, **job}
    tree = spec("llama-3.1-8b", node, 1, job=job, layout={"tp": 1, "replicas": 1})
    assert codes(tree | {"emit": ["sglang"]}) == ([code] if code else [])
