"""Evaluation of all GPUs in all their precisions, and of a GPU generation that users add."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import AnyPlan, Plan, ServingPlan
from parc.compiler.pipeline import emit_plan, plan_spec
from parc.compiler.spec.reading.source import SpecSource
from tests.generations import generation

pytestmark = pytest.mark.usefixtures("few_requests")
LIBRARY = Library()
TRAINING = [
    (gpu, precision)
    for gpu in LIBRARY.names("gpus")
    for precision in generation(LIBRARY.entry("gpus", gpu)["generation"]).precisions
    if precision in LIBRARY.entry("gpus", gpu)["peak_tflops"]
]
FRAMEWORKS = ("megatron", "deepspeed", "fsdp", "torchtitan", "accelerate")
SERVING = ("bf16", "fp16", "fp8", "int4", "nvfp4", "mxfp4")
SERVED = [(gpu, precision) for gpu in LIBRARY.names("gpus") for precision in SERVING]


def sampled(cases: Sequence[tuple[str, str]]) -> list[Any]:
    """Return ``cases``, of which two random thirds run only in the conformance suite.

    The first case of each GPU or generation always runs.
    """
    first = {name: number for number, (name, _) in reversed([*enumerate(cases)])}.values()
    kept = {*first, *Random(0).sample(range(len(cases)), len(cases) // 3)}
    return [
        case if number in kept else pytest.param(*case, marks=pytest.mark.conformance)
        for number, case in enumerate(cases)
    ]


RUBIN_GPU = """\
vendor: nvidia
generation: generations/rubin.yaml
compute_capability: "10.7"
memory: 309
memory_gb_per_s: 13000
peak_tflops: {fp16: 4000, bf16: 4000, fp8: 8000, mxfp8: 8000, nvfp4: 16000}
source: an invented GPU
"""
RUBIN = """\
vendor: nvidia
compute_capabilities: ["10.7"]
precisions: [fp16, bf16, fp8, mxfp8, nvfp4]
kernels_like: b300-288gb
driver_context_mb: 900
host_link_gb_per_s: 50
matmul_workspace_kib: 32768
transformer_engine_workspace_kib: 32769
fp8_cast_bytes: 1
source: an invented generation
serving:
  memory: 0.7
  memory_fp4: 0.7
  gemm: 0.55
  gemm_fp8: 0.35
  gemm_fp4: 0.3
  attention: 0.4
  kernel_seconds: 0.000001
  collective_seconds: 0.000015
  link: 0.75
efficiency:
  transformer-engine: {like: blackwell/transformer-engine, gemm: 1.2}
  torch-native: {like: prior}
"""


def spec(gpu: str, precision: str, **parts: Any) -> dict[str, Any]:
    """Return a small training job on two hosts of ``gpu``."""
    amd = gpu.startswith("mi")
    return {
        "parc": 1,
        "name": "small",
        "model": "llama-3.2-1b",
        "cluster": {"node": "mi300x-8" if amd else "hgx-h100", "gpu": gpu, "nodes": 2},
        "job": {"sequence_length": 2048, "global_batch": 64, "precision": precision},
        **parts,
    }


def framework_spec(gpu: str, framework: str, precision: str) -> dict[str, Any]:
    """Return a job that the programs of all frameworks can train."""
    document = spec(gpu, precision, model="llama-3-8b", emit=[framework])
    if framework == "accelerate" and precision == "bf16":  # it reduces gradients in 16 bit (E11)
        document["job"]["gradient_precision"] = "bf16"
    return document


def served(gpu: str, precision: str) -> dict[str, Any]:
    """Return a small serving job on two hosts of ``gpu``."""
    traffic = {"input_tokens": 500, "output_tokens": 100, "concurrency": 8}
    return spec(gpu, precision) | {
        "job": {
            "kind": "serve",
            "precision": precision,
            "checkpoint": "/models/small",
            "traffic": traffic,
        },
        "layout": {"tp": 1, "pp": 1},
    }


def planned(
    document: Mapping[str, Any], folder: Path | None = None
) -> tuple[AnyPlan | None, list[str]]:
    """Return the plan of a spec in ``folder``, and the codes of the errors."""
    sink = Sink()
    plan = plan_spec(SpecSource("spec.yaml", json.dumps(document), folder), (), sink)
    if plan is not None:
        assert emit_plan(plan, sink, report=False)  # the page does not depend on the GPU
    return plan, [found.code for found in sink.diagnostics if found.severity == "error"]


@pytest.fixture
def user_catalog(tmp_path: Path) -> Path:
    """Return a folder with a spec's own GPU and generation, one file for each."""
    for path, text in (("gpus/r100-288gb.yaml", RUBIN_GPU), ("generations/rubin.yaml", RUBIN)):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("gpu", "precision"), sampled(TRAINING))
def test_every_gpu_trains_in_every_precision_of_its_generation(gpu: str, precision: str) -> None:
    plan, errors = planned(spec(gpu, precision, layout={"tp": 1, "pp": 1, "cp": 1}))
    assert errors == []
    assert isinstance(plan, Plan)
    assert 0 < plan.estimate.time.total_seconds < 1e3
    assert plan.estimate.peak.total_bytes > 0


def test_a_gpu_without_a_rate_for_a_precision_is_refused() -> None:
    assert ("rtx-pro-6000-96gb", "mxfp8") not in TRAINING
    pinned = {"tp": 1, "pp": 1, "cp": 1}
    assert planned(spec("rtx-pro-6000-96gb", "mxfp8", layout=pinned)) == (None, ["PARC-R03"])


@pytest.mark.parametrize(
    ("name", "framework"),
    sampled([(name, one) for name in LIBRARY.names("generations") for one in FRAMEWORKS]),
)
def test_every_framework_trains_on_every_generation(name: str, framework: str) -> None:
    gpus = [
        gpu for gpu in LIBRARY.names("gpus") if LIBRARY.entry("gpus", gpu)["generation"] == name
    ]
    has_bf16 = "bf16" in generation(name).precisions
    plan, errors = planned(
        framework_spec(gpus[0], framework, precision="bf16" if has_bf16 else "fp16")
    )
    if has_bf16:
        assert errors == []
        assert plan is not None
    else:  # the programs of torch train in bf16 only (E11)
        assert errors == ([] if plan else ["PARC-E11"])


@pytest.mark.parametrize(("gpu", "precision"), sampled(SERVED))
def test_every_gpu_serves_in_every_format_that_the_engine_supports(
    gpu: str, precision: str
) -> None:
    plan, errors = planned(served(gpu, precision))
    assert errors == ([] if plan else ["PARC-R03"])
    if plan is not None:
        assert isinstance(plan, ServingPlan)
        assert 0 < plan.estimate.tpot_seconds < 10


@pytest.mark.parametrize("precision", generation("blackwell").precisions)
def test_a_generation_of_the_user_trains(user_catalog: Path, precision: str) -> None:
    plan, errors = planned(spec("gpus/r100-288gb.yaml", precision), user_catalog)
    assert errors == []
    assert isinstance(plan, Plan)
    assert plan.problem.cluster.gpu.name == "r100-288gb"
    assert plan.problem.cluster.gpu.generation == "rubin"
    assert plan.estimate.peak.framework_bytes == 900e6


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_trains_on_a_generation_of_the_user(
    user_catalog: Path, framework: str
) -> None:
    document = framework_spec("gpus/r100-288gb.yaml", framework, "bf16")
    plan, errors = planned(document, user_catalog)
    assert errors == []
    assert plan is not None


@pytest.mark.parametrize("precision", SERVING)
def test_a_generation_of_the_user_serves(user_catalog: Path, precision: str) -> None:
    plan, errors = planned(served("gpus/r100-288gb.yaml", precision), user_catalog)
    assert errors == []
    assert plan is not None


def test_the_digest_of_a_plan_changes_with_the_users_facts(user_catalog: Path) -> None:
    job = spec("gpus/r100-288gb.yaml", "bf16", layout={"tp": 1, "pp": 1, "cp": 1})
    first, _ = planned(job, user_catalog)
    path = user_catalog / "generations/rubin.yaml"
    path.write_text(RUBIN.replace("driver_context_mb: 900", "driver_context_mb: 901"), "utf-8")
    second, _ = planned(job, user_catalog)
    assert first is not None
    assert second is not None
    assert first.problem.digest != second.problem.digest


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("driver_context_mb: 900\n", "driver_context_mb is missing"),
        ("  gemm: 0.55\n", "serving.gemm is missing"),
        ("  torch-native: {like: prior}\n", "efficiency.torch-eager is missing"),
    ],
)
def test_a_missing_fact_is_reported_with_file_and_key(
    user_catalog: Path, line: str, key: str
) -> None:
    path = user_catalog / "generations/rubin.yaml"
    assert line in RUBIN
    path.write_text(RUBIN.replace(line, ""), "utf-8")
    sink = Sink()
    document = spec("gpus/r100-288gb.yaml", "bf16", emit=["fsdp"])
    assert plan_spec(SpecSource("spec.yaml", json.dumps(document), user_catalog), (), sink) is None
    (found,) = sink.diagnostics
    assert found.code == "PARC-K08"
    assert found.finding.message.startswith(f"generations/rubin.yaml: {key}")


@pytest.mark.parametrize("like", ["itself/torch-native", "generations/rubin.yaml/torch-native"])
def test_a_row_that_borrows_from_itself_is_an_error(user_catalog: Path, like: str) -> None:
    path = user_catalog / "generations/rubin.yaml"
    path.write_text(RUBIN.replace("{like: prior}", f"{{like: {like}}}"), "utf-8")
    plan, errors = planned(spec("gpus/r100-288gb.yaml", "bf16"), user_catalog)
    assert plan is None
    assert errors == ["PARC-K01" if like.startswith("itself") else "PARC-K08"]


def test_a_gpu_file_with_a_wrong_key_is_an_error_at_that_key(user_catalog: Path) -> None:
    path = user_catalog / "gpus/r100-288gb.yaml"
    path.write_text(RUBIN_GPU + "color: green\n", "utf-8")
    sink = Sink()
    document = spec("gpus/r100-288gb.yaml", "bf16")
    assert plan_spec(SpecSource("spec.yaml", json.dumps(document), user_catalog), (), sink) is None
    (found,) = sink.diagnostics
    assert found.code == "PARC-K08"
    assert found.span is not None
    assert (found.span.file, found.span.line) == ("gpus/r100-288gb.yaml", 8)


def test_a_file_that_does_not_exist_is_an_error_at_the_spec(tmp_path: Path) -> None:
    plan, errors = planned(spec("gpus/none.yaml", "bf16"), tmp_path)
    assert plan is None
    assert errors == ["PARC-K07"]
