"""The config.json of a service states the format of quantized weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import parc
from parc.compiler.ir import ServingPlan
from tests.catalog.configs import LLAMA
from tests.compiled import Spec, planned

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
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
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ],
)
def test_the_plan_has_the_format_that_the_config_states(quantized: object, precision: str) -> None:
    spec = service(quantized)
    if precision == "nvfp4":  # Hopper has no such units
        spec = {**spec, "cluster": {"node": "dgx-b200", "nodes": 1}}
    assert codes(spec) == []
    assert format_of(spec) == precision


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
