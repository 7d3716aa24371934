"""PARC rejects specs that TensorRT-LLM rejects, or cannot run as planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.tensorrt_llm.schema import Mapping, parse
from tests.search.serving_specs import planned, spec

pytestmark = pytest.mark.conformance
Tree = dict[str, Any]


def service(model: str, nodes: int, layout: Tree, **parts: Any) -> Tree:
    """Return a spec on hosts of eight H200."""
    job = {"max_model_len": 4096, "block_tokens": 32, **parts.pop("job", {})}
    job |= {"precision": "fp8"} if model == "deepseek-v3" else {}
    tree = spec(model, "hgx-h200", nodes, job=job, layout={"replicas": 1, **layout})
    return tree | parts | {"emit": ["tensorrt-llm", "rankmap"]}


def invalid_services() -> Iterator[tuple[str, Tree]]:
    """Yield (name, spec) of specs that must not compile."""
    yield from _sizes()
    yield from _experts()
    yield from _versions()
    yield from _arguments()
    yield from _models()


def _sizes() -> Iterator[tuple[str, Tree]]:
    models = ("llama-3.1-70b", "llama-3.1-8b", "qwen3-235b-a22b", "deepseek-v3", "mixtral-8x7b")
    for model in models:
        for tp in (3, 5, 6, 7):
            yield f"{model} over tp {tp}", service(model, 1, {"tp": tp})
        for field in ("dcp", "pcp"):
            yield f"{field} of {model}", service(model, 2, {"tp": 8, field: 2})
    for model in ("llama-3.1-8b", "mixtral-8x7b", "qwen3-8b"):
        for dp in (2, 4, 8):
            yield f"{model} with dp {dp}", service(model, 1, {"tp": 1, "dp": dp})
    for stages in ([40, 30], [80], [20, 20, 40], [1, 80]):
        layout = {"tp": 4, "pp": 2, "stage_layers": stages}
        yield f"stages {stages}", service("llama-3.1-70b", 1, layout)
    yield "more stages than layers", service("llama-3.1-8b", 5, {"tp": 1, "pp": 40})


def _experts() -> Iterator[tuple[str, Tree]]:
    for tp, dp in ((2, 2), (2, 4), (4, 2)):
        for ep in ("on", "off"):
            layout = {"tp": tp, "dp": dp, "ep": ep}
            yield f"tp {tp} with dp {dp}, ep {ep}", service("deepseek-v3", 1, layout)
    layout = {"tp": 8, "dp": 1}
    values = [("ep", one) for one in (2, 3, 4, 16)]
    values += [("redundant_experts", one) for one in (0, 8, -1)]
    exchanges = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")
    for field, value in (*values, *(("all2all", one) for one in exchanges)):
        tree = service("qwen3-235b-a22b", 1, {**layout, "ep": "on", field: value})
        yield f"{field} {value}", tree


def _versions() -> Iterator[tuple[str, Tree]]:
    for version in ("1.0.0", "1.1.0"):
        versions = {"versions": {"tensorrt-llm": version}}
        layout = {"tp": 4, "pp": 2, "stage_layers": [39, 41]}
        yield f"uneven stages of {version}", service("llama-3.1-70b", 1, layout, **versions)
        for flag in ("--tool_parser", "--revision", "--chat_template", "--cp_size", "--config"):
            launch = {"args": [flag, "1"]}
            tree = service("llama-3.1-8b", 1, {"tp": 8}, launch=launch, **versions)
            yield f"{flag} in {version}", tree
    for block in (1, 8, 16, 64, 128):
        tree = service("llama-3.1-8b", 1, {"tp": 8}, job={"block_tokens": block})
        yield f"blocks of {block} in 1.0", tree | {"versions": {"tensorrt-llm": "1.0.0"}}


def _arguments() -> Iterator[tuple[str, Tree]]:
    owned = (
        *("--tp_size", "--pp_size", "--ep_size", "--max_batch_size", "--max_num_tokens"),
        *("--max_seq_len", "--port", "--tensor_parallel_size", "--pipeline_parallel_size"),
        *("--moe_expert_parallel_size", "--kv_cache_free_gpu_memory_fraction", "--host"),
        *("--free_gpu_memory_fraction", "--backend", "--config", "--extra_llm_api_options"),
    )
    invalid = (
        *(("--no_such_flag",), ("--tp-size", "8"), ("--tp", "8"), ("--max_beam_width", "two")),
        *(("--log_level", "loud"), ("--trust_remote_code", "yes"), ("word",), ("--tokenizer",)),
    )
    for words in (*((flag, "1") for flag in owned), *invalid):
        launch = {"args": list(words)}
        yield " ".join(words), service("llama-3.1-8b", 1, {"tp": 8}, launch=launch)


def _models() -> Iterator[tuple[str, Tree]]:
    for model in ("starcoder2-3b", "olmoe-1b-7b"):
        yield model, service(model, 1, {"tp": 1})
    for model in ("gpt-oss-120b", "gpt-oss-20b", "glm-4.5"):
        tree = service(model, 2, {"tp": 8, "pp": 2, "dp": 1})
        yield f"{model} in 1.0.0", tree | {"versions": {"tensorrt-llm": "1.0.0"}}
    quantized = {"precision": "fp8", "quantize": True}
    yield "quantization at load", service("llama-3.1-8b", 1, {"tp": 8}, job=quantized)


CASES = dict(invalid_services())


@pytest.mark.parametrize("name", CASES)
def test_parc_rejects_the_spec(name: str) -> None:
    plan, sink = planned(CASES[name])
    assert plan is None or sink.failed()
    assert not any(one.code.startswith(("PARC-K", "PARC-X")) for one in sink.diagnostics), name


def test_at_least_100_specs_are_rejected() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(
    ("version", "words", "config"),
    [
        ("1.1.0", ["m", "--tool_parser", "x"], {}),
        ("1.2.1", ["m", "--tp-size", "8"], {}),
        ("1.2.1", ["m", "--log_level", "loud"], {}),
        ("1.2.1", ["m"], {"no_such_key": 1}),
        ("1.0.0", ["m"], {"kv_cache_config": {"tokens_per_block": 32}}),
        ("1.1.0", ["m"], {"pp_partition": [1, 2]}),
        ("1.2.1", ["m"], {"kv_cache_config": {"free_gpu_memory_fraction": 1.5}}),
    ],
)
def test_the_transcript_rejects_what_the_version_lacks(
    version: str, words: list[str], config: Tree
) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(version, words, config)


@pytest.mark.parametrize(("tp", "pp", "ep"), [(8, 3, 1), (6, 4, 1), (8, 1, 3)])
def test_class_mapping_rejects_sizes_that_do_not_fill_the_engine(tp: int, pp: int, ep: int) -> None:
    with pytest.raises(ValueError, match="!="):
        Mapping(8, tp, pp, ep)
