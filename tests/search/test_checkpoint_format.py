"""Tests of the checkpoint of a service: its choice, and the format of its weights (F06, X08)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from parc.compiler.catalog.checkpoints import catalog_checkpoints
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.tools.importers.format_fragment import fragment_json
from parc.compiler.tools.importers.import_files import import_files
from tests.compiled import emitted, planned, verification_codes
from tests.search.serving_specs import CHAT, codes, plan_of, spec

pytestmark = pytest.mark.usefixtures("few_requests")
LLAMA = "meta-llama/Llama-3.1-70B"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def served(model: str, job: dict[str, Any]) -> dict[str, Any]:
    tree = spec(model, "hgx-h200", 4 if model == "deepseek-v3" else 1)
    tree["job"] = {"kind": "serve", "traffic": CHAT, "max_model_len": 4096, **job}
    return tree


@pytest.mark.parametrize(
    ("model", "job", "code"),
    [
        ("llama-3.1-70b", {"precision": "fp8", "checkpoint": "lab/Llama-3.1-70B-FP8"}, ""),
        ("llama-3.1-70b", {"precision": "int4", "checkpoint": "lab/Llama-3.1-70B-FP8"}, "F06"),
        ("llama-3.1-70b", {"checkpoint": "lab/Llama-3.1-70B-AWQ"}, ""),
        ("llama-3.1-70b", {"precision": "fp8", "checkpoint": LLAMA}, "F06"),
        ("llama-3.1-70b", {"precision": "int4", "checkpoint": LLAMA}, "F06"),
        ("llama-3.1-70b", {"precision": "fp8", "checkpoint": LLAMA, "quantize": True}, ""),
        ("llama-3.1-70b", {"precision": "fp8", "checkpoint": "/models/mine"}, ""),
        ("llama-3.1-70b", {"checkpoint": "/models/mine"}, "X08"),
        ("llama-3.1-70b", {"precision": "mxfp4"}, "F06"),
        ("mixtral-8x7b", {"precision": "fp8"}, "F06"),
        ("mixtral-8x7b", {"precision": "fp8", "quantize": True}, ""),
        ("deepseek-v3", {"precision": "fp8"}, ""),
        ("deepseek-v3", {}, ""),
        ("deepseek-v3", {"precision": "bf16"}, "F06"),
        ("gpt-oss-20b", {}, ""),
        ("gpt-oss-20b", {"precision": "int4"}, "F06"),
    ],
)
def test_no_plan_assumes_another_format_than_that_of_its_checkpoint(
    model: str, job: dict[str, Any], code: str
) -> None:
    found = [one for one in codes(served(model, job)) if one in ("F06", "X08")]
    assert found == ([code] if code else [])
    plan, _ = planned(served(model, job))
    assert (plan is None) is bool(code)


@pytest.mark.parametrize(
    ("model", "job", "checkpoint"),
    [
        ("llama-3.1-70b", {}, "meta-llama/Llama-3.1-70B-Instruct"),
        ("llama-3.1-70b", {"precision": "fp16"}, "meta-llama/Llama-3.1-70B-Instruct"),
        ("llama-3.1-70b", {"precision": "fp8"}, "nvidia/Llama-3.1-70B-Instruct-FP8"),
        (
            "llama-3.1-70b",
            {"precision": "fp8", "quantize": True},
            "meta-llama/Llama-3.1-70B-Instruct",
        ),
        ("llama-3.1-70b", {"checkpoint": LLAMA}, LLAMA),
        ("gpt-oss-20b", {"precision": "mxfp4"}, "openai/gpt-oss-20b"),
        ("pythia-1.4b", {"max_model_len": 2048}, "EleutherAI/pythia-1.4b"),
    ],
)
def test_services_load_the_checkpoint_for_instructions_in_the_planned_format(
    model: str, job: dict[str, Any], checkpoint: str
) -> None:
    tree = served(model, job)
    tree["job"]["traffic"] = {"input_tokens": 500, "output_tokens": 100}
    assert plan_of(tree).problem.service.checkpoint == checkpoint


@pytest.mark.parametrize(
    ("model", "job", "fix"),
    [
        ("deepseek-v3", {"precision": "bf16"}, "job.precision: fp8"),
        ("gpt-oss-20b", {"precision": "bf16"}, "job.precision: mxfp4"),
        ("mixtral-8x7b", {"precision": "fp8"}, "job.quantize: true"),
        ("llama-3.1-70b", {"checkpoint": "/models/mine"}, "job.precision: bf16"),
    ],
)
def test_the_fix_of_a_format_names_the_field(model: str, job: dict[str, Any], fix: str) -> None:
    _, sink = planned(served(model, job))
    assert [one.finding.fix for one in sink.diagnostics if one.severity == "error"] == [fix]


@pytest.mark.parametrize(
    ("model", "job", "weights"),
    [
        ("llama-3.1-70b", {}, "bf16"),
        ("llama-3.1-70b", {"quantize": True}, "fp8"),
        ("llama-3.1-70b", {"checkpoint": "lab/Llama-3.1-70B-AWQ"}, "int4"),
        ("deepseek-v3", {}, "fp8"),
        ("gpt-oss-20b", {}, "mxfp4"),
    ],
)
def test_without_precision_the_weights_have_the_format_of_the_checkpoint(
    model: str, job: dict[str, Any], weights: str
) -> None:
    assert plan_of(served(model, job)).problem.service.setup.weights == weights


def test_a_model_of_another_source_needs_the_format() -> None:
    tree = served("llama-3.1-70b", {})
    tree["model"] = {"base": "llama-3.1-70b", "source": "https://huggingface.co/lab/own"}
    assert "X08" in codes(tree)
    tree["job"]["precision"] = "bf16"
    assert plan_of(tree).problem.service.checkpoint == "lab/own"


@pytest.mark.parametrize(("model", "gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_the_weights_of_gpt_oss_have_the_size_of_its_checkpoint(model: str, gib: float) -> None:
    """Sizes from the model card: experts in mxfp4, everything else in 16 bit."""
    tree = served(model, {"precision": "mxfp4"})
    tree["layout"] = {"tp": 1, "pp": 1, "replicas": 1}
    plan = plan_of(tree)
    assert plan.estimate.memory.weights_bytes == pytest.approx(gib * 2**30, rel=0.01)


def test_each_catalog_model_of_a_repository_has_checkpoints() -> None:
    library, table = Library(), catalog_checkpoints()
    sources = {name: library.entry("models", name)["source"] for name in library.names("models")}
    prefix = "https://huggingface.co/"
    listed = {name: source for name, source in sources.items() if source.startswith(prefix)}
    assert listed.keys() == table.keys()
    for model, uses in table.items():
        assert {*uses} <= {"base", "instruct"}
        repositories = [name for forms in uses.values() for name in forms.values()]
        assert sources[model].removeprefix(prefix) in repositories
        assert len(set(repositories)) == len(repositories)
        assert all(REPOSITORY.fullmatch(name) for name in repositories)
        formats = {form for forms in uses.values() for form in forms}
        assert formats <= {"bf16", "fp8", "int4", "nvfp4", "mxfp4"}


@pytest.mark.parametrize(
    ("checkpoint", "model", "precision"),
    [
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3", "fp8"),
        ("openai/gpt-oss-20b", "gpt-oss-20b", "mxfp4"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3", "bf16"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b", "bf16"),
    ],
)
def test_an_imported_command_has_the_format_of_its_checkpoint(
    checkpoint: str, model: str, precision: str
) -> None:
    command = f"vllm serve {checkpoint} --dtype bfloat16 --tensor-parallel-size 8\n"
    result = import_files("auto", [(command, "serve.sh")], Sink())
    assert result is not None
    found = fragment_json(result.fragment, Sink())["spec"]
    assert found["model"] == model
    assert found["job"]["precision"] == precision


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_plan_in_mxfp4_is_emitted_and_verified(engine: str) -> None:
    tree = served("gpt-oss-20b", {"precision": "mxfp4"}) | {"emit": [engine, "rankmap"]}
    files = emitted(plan_of(tree))
    assert "openai/gpt-oss-20b" in files[f"{engine}/serve.sh"]
    assert verification_codes(files) == set()
