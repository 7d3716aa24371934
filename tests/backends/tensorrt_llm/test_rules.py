"""Layouts and settings that PARC rejects for TensorRT-LLM."""

from __future__ import annotations

from typing import Any

import pytest

from tests.search.serving_specs import codes, spec

FP8 = {"precision": "fp8"}


def found(model: str, nodes: int, layout: dict[str, Any], **parts: Any) -> list[str]:
    """Return the codes of the findings about one engine with ``layout``."""
    job = {"max_model_len": 4096, "block_tokens": 32, **(FP8 if model == "deepseek-v3" else {})}
    job |= parts.pop("job", {})
    node = parts.pop("node", "hgx-h200")
    tree = spec(model, node, nodes, job=job, layout={"replicas": 1, **layout})
    return codes(tree | {"emit": ["tensorrt-llm"]} | parts)


@pytest.mark.parametrize(
    ("model", "nodes", "layout", "code"),
    [
        ("llama-3.1-70b", 1, {"tp": 5}, "D01"),
        ("qwen2.5-7b", 1, {"tp": 7}, "D02"),
        ("llama-3.1-70b", 1, {"tp": 8, "dcp": 2}, "V12"),
        ("llama-3.1-8b", 1, {"tp": 1, "dp": 8}, "V11"),
        ("mixtral-8x7b", 1, {"tp": 1, "dp": 8}, "V11"),
        ("deepseek-v3", 1, {"tp": 2, "dp": 4, "ep": "on"}, "V11"),
        ("llama-3.1-8b", 5, {"tp": 1, "pp": 40}, "V27"),
        ("llama-3.1-70b", 1, {"tp": 4, "pp": 2, "stage_layers": [40, 30]}, "P01"),
        ("llama-3.1-70b", 1, {"tp": 8, "ep": "on"}, "M01"),
        ("qwen3-235b-a22b", 1, {"tp": 8, "dp": 1, "ep": 4}, "M09"),
        ("qwen3-235b-a22b", 1, {"tp": 8, "dp": 1, "ep": "on", "redundant_experts": 8}, "M10"),
        ("qwen3-30b-a3b", 1, {"tp": 1, "dp": 1, "ep": "on"}, "V21"),
        ("qwen3-235b-a22b", 1, {"tp": 8, "dp": 1, "ep": "on", "all2all": "nixl_ep"}, "V23"),
    ],
)
def test_a_layout_is_rejected(model: str, nodes: int, layout: dict[str, Any], code: str) -> None:
    assert code in found(model, nodes, layout)


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"launch": {"args": ["--no_such_flag"]}}, "F01"),
        (
            {"launch": {"args": ["--tool_parser", "x"]}, "versions": {"tensorrt-llm": "1.1.0"}},
            "F01",
        ),
        ({"launch": {"args": ["--tp_size", "4"]}}, "F02"),
        ({"launch": {"args": ["--tensor_parallel_size", "4"]}}, "F02"),
        ({"launch": {"args": ["--config", "mine.yaml"]}}, "F02"),
        ({"launch": {"args": ["--kv_cache_free_gpu_memory_fraction", "0.5"]}}, "F02"),
        ({"launch": {"args": ["--max_beam_width", "two"]}}, "F03"),
        ({"launch": {"port": 65535}, "layout": {"tp": 4, "replicas": 2}}, "L20"),
        ({"launch": {"load_balancer": "external"}}, "V09"),
        ({"job": {"block_tokens": 16}, "versions": {"tensorrt-llm": "1.0.0"}}, "V04"),
        ({"job": {"block_tokens": 1}}, "V04"),
        ({"job": {"precision": "fp8", "quantize": True}}, "V06"),
        ({"node": "dgx-a100", "job": {"precision": "fp8"}}, "R03"),
        ({"node": "mi300x-8"}, "R03"),
    ],
)
def test_a_setting_is_rejected(parts: dict[str, Any], code: str) -> None:
    layout = {"tp": 8, **parts.pop("layout", {})}
    assert code in found("llama-3.1-8b", 1, layout, **parts)


@pytest.mark.parametrize(
    ("model", "version", "is_rejected"),
    [
        ("gpt-oss-120b", "1.0.0", True),
        ("gpt-oss-120b", "1.1.0", False),
        ("olmo-2-32b", "1.2.1", True),
        ("kimi-k2", "1.0.0", True),
    ],
)
def test_a_model_needs_a_version_with_a_class_for_it(
    model: str, version: str, is_rejected: bool
) -> None:
    versions = {"versions": {"tensorrt-llm": version}}
    assert ("V31" in found(model, 2, {"tp": 8, "pp": 2}, **versions)) is is_rejected


def test_stages_can_differ_from_the_default_since_1_2() -> None:
    layout = {"tp": 4, "pp": 2, "stage_layers": [39, 41]}
    old = found("llama-3.1-70b", 1, layout, versions={"tensorrt-llm": "1.1.0"})
    assert (old, found("llama-3.1-70b", 1, layout)) == (["P01"], [])


def test_latent_attention_needs_a_gpu_with_chunked_prefill_for_long_prompts() -> None:
    job = {"max_model_len": 16384, "max_num_batched_tokens": 8192}
    layout, old = {"tp": 8, "dp": 1, "ep": "off"}, {"versions": {"tensorrt-llm": "1.0.0"}}
    assert found("deepseek-v3", 1, layout, job=job, **old) == ["V04"]
    assert found("deepseek-v3", 1, layout, job=job) == []
    assert (
        found("deepseek-v3", 1, layout, job={**job, "max_num_batched_tokens": 16384}, **old) == []
    )


def test_an_engine_on_several_hosts_needs_a_launcher_of_mpi_and_plain_words() -> None:
    layout = {"tp": 8, "pp": 2}
    image = {"slurm": {"container_image": "trtllm.sqsh"}}
    assert found("llama-3.1-70b", 2, layout, emit=["slurm", "tensorrt-llm"]) == []
    assert "V50" in found("llama-3.1-70b", 2, layout, emit=["slurm", "tensorrt-llm"], launch=image)
    words = {"args": ["--chat_template", "a b"]}
    assert found("llama-3.1-70b", 2, layout, launch=words) == ["F03"]
    assert found("llama-3.1-70b", 1, {"tp": 8}, launch=words) == []
