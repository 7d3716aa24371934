"""The config.json of a service states the format of quantized weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import parc
from parc.compiler.catalog.huggingface.checkpoint_precision import checkpoint_precision
from parc.compiler.ir import ServingPlan
from tests.catalog.configs import LLAMA
from tests.compiled import Spec, planned

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
SERVICE: Spec = {
    "parc": 1,
    "name": "quantized",
    "model": "config.json",
    "cluster": {"node": "hgx-h100", "nodes": 1},
    "emit": ["vllm"],
}
TRAFFIC = {"input_tokens": 2000, "output_tokens": 500, "concurrency": 16}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def service(quantized: object, checkpoint: str = "/models/x", **job: Any) -> Spec:
    """Return a service from a config.json with this ``quantization_config``."""
    config = {**LLAMA, "quantization_config": quantized}
    Path("config.json").write_text(json.dumps(config), "utf-8")
    served = {"kind": "serve", "max_model_len": 4096, "checkpoint": checkpoint}
    return {**SERVICE, "job": {**served, "traffic": TRAFFIC, **job}}


def format_of(spec: Spec) -> str:
    """Return the format of the weights in the plan of ``spec``."""
    plan, _ = planned(spec)
    assert isinstance(plan, ServingPlan)
    return plan.problem.service.setup.weights


def codes(spec: Spec) -> list[str]:
    """Return the codes of all findings on ``spec``."""
    return [found.code for found in parc.check(spec)]


@pytest.mark.parametrize(
    ("quantized", "precision"),
    [
        (AWQ, "int4"),
        ({"quant_method": "fp8"}, "fp8"),
        (NVFP4, "nvfp4"),
    ],
)
def test_the_plan_has_the_format_that_the_config_states(quantized: object, precision: str) -> None:
    spec = service(quantized)
    if precision == "nvfp4":  # Hopper has no such units
        spec = {**spec, "cluster": {"node": "dgx-b200", "nodes": 1}}
    assert codes(spec) == []
    assert format_of(spec) == precision


def group(kind: str, bits: int, targets: str = "Linear", **weights: Any) -> dict[str, Any]:
    """Return a group of layers as compressed-tensors and ModelOpt describe it."""
    return {"targets": [targets], "weights": {"type": kind, "num_bits": bits, **weights}}


def quark(weights: object) -> dict[str, Any]:
    """Return the description of a checkpoint that AMD's Quark wrote."""
    return {"quant_method": "quark", "global_quant_config": {"weight": weights}}


FLOAT_8, FLOAT_4 = group("float", 8, "self_attn.q_proj"), group("float", 4, group_size=16)
MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}


@pytest.mark.parametrize(
    ("quantized", "precision"),
    [
        # RedHatAI/Llama-3.3-70B-Instruct-NVFP4, and moonshotai/Kimi-K3
        ({"config_groups": {"group_0": FLOAT_4}, "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"config_groups": {"group_0": group("float", 4, group_size=32)}}, "mxfp4"),
        ({"config_groups": {"group_0": group("float", 4)}}, ""),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "int"}, "int4"),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"}, ""),
        ({"quant_method": "gptq", "bits": 8}, ""),
        # amd/Llama-3.1-70B-Instruct-FP8-KV and amd/DeepSeek-R1-MXFP4
        (quark({"dtype": "fp8_e4m3", "group_size": None, "qscheme": "per_tensor"}), "fp8"),
        (quark({"dtype": "fp4", "group_size": 32, "scale_format": "e8m0"}), "mxfp4"),
        (quark({"dtype": "int8"}), ""),
        (quark({"dtype": ["fp4"]}), ""),
        (quark([{"dtype": "fp8_e4m3"}, {"dtype": "int4"}]), ""),
        ({"quant_method": "quark", "global_quant_config": None}, ""),
        # nvidia/DeepSeek-V4-Flash-NVFP4
        (
            {"quant_method": "fp8", "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4"},
            "nvfp4",
        ),
        # nvidia/Qwen3.6-27B-NVFP4: attention in 8 bit
        (
            {
                **MIXED,
                "config_groups": {"group_0": FLOAT_8, "group_1": FLOAT_4},
                "quantized_layers": {
                    "layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                    "layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                },
            },
            "nvfp4",
        ),
        # nvidia/MiniMax-M3-NVFP4: dense layers and shared experts in a format without precision
        (
            {
                **MIXED,
                "quantized_layers": {
                    "layers.0.mlp.up_proj": {"quant_algo": "MXFP8"},
                    "layers.3.block_sparse_moe.shared_experts.up_proj": {"quant_algo": "MXFP8"},
                    "layers.3.block_sparse_moe.experts.0.w1": {"quant_algo": "NVFP4"},
                },
            },
            "nvfp4",
        ),
        (
            {
                **MIXED,
                "quantized_layers": {
                    "layers.0.mlp.experts.0.w1": {"quant_algo": "FP8"},
                    "layers.1.mlp.experts.0.w1": {"quant_algo": "NVFP4"},
                },
            },
            "",
        ),
        ({**MIXED, "quantized_layers": "see another file"}, ""),
    ],
)
def test_of_several_formats_that_of_the_experts_or_mlps_counts(
    quantized: dict[str, Any], precision: str
) -> None:
    stated = checkpoint_precision({"quantization_config": quantized})
    assert stated is not None
    assert stated.precision == precision


def test_experts_of_deepseek_v4_are_narrower_than_its_other_layers() -> None:
    config = {"quantization_config": {"quant_method": "fp8"}, "expert_dtype": "fp4"}
    stated = checkpoint_precision(config)
    assert stated is not None
    assert stated.precision == "mxfp4"


def test_the_format_may_be_stated_in_the_config_of_the_text_decoder() -> None:
    decoder = {**LLAMA, "quantization_config": AWQ}  # as in moonshotai/Kimi-K2.5
    wrapped = {"model_type": "wrapper", "text_config": decoder, "vision_config": {"depth": 2}}
    spec = {**service({}), "model": "config.json#text_config"}
    Path("config.json").write_text(json.dumps(wrapped), "utf-8")
    assert format_of(spec) == "int4"


def test_the_format_of_a_vision_encoder_does_not_count() -> None:
    config = {"text_config": LLAMA, "vision_config": {"depth": 2, "quantization_config": AWQ}}
    assert checkpoint_precision(config) is None


def test_the_format_may_be_stated_in_the_file_of_modelopt() -> None:
    # As in nvidia/Qwen3-235B-A22B-NVFP4, whose config.json has no quantization_config.
    spec = {**service({}), "cluster": {"node": "dgx-b200", "nodes": 1}}
    file = Path("hf_quant_config.json")
    file.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": NVFP4}), "utf-8")
    assert format_of(spec) == "nvfp4"
    Path("config.json").rename("llama.json")  # may belong to another model
    assert codes({**spec, "model": "llama.json"}) == ["PARC-X08"]


FLOAT_8_CACHE = {"num_bits": 8, "type": "float", "dynamic": False}


@pytest.mark.parametrize(
    ("stated", "job", "cache"),
    [
        ({"kv_cache_scheme": FLOAT_8_CACHE}, {}, "fp8"),
        ({"kv_cache_quant_algo": "FP8"}, {}, "fp8"),
        ({"kv_cache_scheme": FLOAT_8_CACHE}, {"checkpoint": "org/model-FP8"}, "fp8"),
        ({"kv_cache_scheme": FLOAT_8_CACHE}, {"checkpoint": "org/model-AWQ"}, "bf16"),
        ({"kv_cache_scheme": FLOAT_8_CACHE}, {"kv_precision": "bf16"}, "bf16"),
        ({"kv_cache_scheme": {**FLOAT_8_CACHE, "type": "int"}}, {}, "bf16"),
        ({"kv_cache_scheme": None, "kv_cache_quant_algo": None}, {}, "bf16"),
    ],
)
def test_the_kv_cache_has_the_format_that_the_config_states(
    stated: dict[str, Any], job: dict[str, str], cache: str
) -> None:
    # As in nvidia/Llama-3.1-70B-Instruct-FP8, which vLLM serves with an fp8 KV cache.
    spec = service({"quant_method": "modelopt", "quant_algo": "FP8", **stated}, **job)
    plan, _ = planned(spec)
    assert isinstance(plan, ServingPlan)
    assert plan.problem.service.setup.kv == cache


@pytest.mark.parametrize("text", ["{", "[]", '{"quantization": 4}', '{"quantization": {}}'])
def test_an_unusable_file_of_modelopt_states_no_format(text: str) -> None:
    spec = service({})
    Path("hf_quant_config.json").write_text(text, "utf-8")
    (found,) = parc.check(spec)
    assert found.finding.message == "job.precision is not set"


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_another_precision_is_an_error_with_the_stated_one_as_fix(precision: str) -> None:
    (found,) = parc.check(service(AWQ, precision=precision))
    assert found.code == "PARC-F06"
    assert found.finding.fix == "job.precision: int4"


def test_the_name_of_the_checkpoint_decides_if_it_states_a_format() -> None:
    spec = service(AWQ, checkpoint="org/model-FP8")
    assert codes(spec) == []
    assert format_of(spec) == "fp8"


@pytest.mark.parametrize("precision", [{}, {"precision": "bf16"}])
def test_a_format_without_a_precision_is_an_error_without_a_fix(precision: dict[str, Any]) -> None:
    (found,) = parc.check(service({"quant_method": "gptq", "bits": 3}, **precision))
    assert found.code in ("PARC-X08", "PARC-F06")
    assert found.finding.fix == ""
    if not precision:
        assert "quant_method is 'gptq', bits is 3" in found.finding.label


def test_training_says_that_the_quantization_has_no_effect() -> None:
    service(AWQ)
    job = {"sequence_length": 2048, "global_batch": 64}
    assert "PARC-K04" in codes({**SERVICE, "job": job, "emit": ["megatron"]})


@pytest.mark.parametrize("precision", [{}, {"precision": "fp8"}])
@pytest.mark.parametrize(
    ("quantized", "checkpoint", "text"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "/models/x", "fp8 weights"),
        (AWQ, "/models/x", "int4 weights"),
        ({"quant_method": "gptq", "bits": 3}, "/models/x", "weights of another format"),
        ({}, "org/model-FP8", "fp8 weights"),
        ({}, "nvidia/Llama-3.1-8B-Instruct-FP8", "fp8 weights"),
    ],
)
def test_a_quantized_checkpoint_cannot_be_quantized_again(
    quantized: object, checkpoint: str, text: str, precision: dict[str, Any]
) -> None:
    (found,) = parc.check(service(quantized, checkpoint, quantize=True, **precision))
    assert found.code == "PARC-F06"
    assert text in found.finding.message
    assert found.finding.fix == "remove job.quantize"


def test_a_checkpoint_of_16_bit_or_unknown_format_can_be_quantized() -> None:
    for checkpoint in ("/models/x", "meta-llama/Llama-3.1-8B-Instruct"):
        spec = service({}, checkpoint, quantize=True)
        assert codes(spec) == []
        assert format_of(spec) == "fp8"


def test_a_model_without_16_bit_checkpoint_cannot_be_quantized() -> None:
    job = {"kind": "serve", "traffic": TRAFFIC, "quantize": True}
    spec = {**SERVICE, "model": "deepseek-v3", "job": job}
    (found,) = parc.check({**spec, "cluster": {"node": "hgx-h200", "nodes": 2}})
    assert (found.code, found.finding.fix) == ("PARC-F06", "remove job.quantize")
