"""PARC emits a program for the models that its own decoder or the library transformers builds."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from parc.compiler.catalog.library import Library
from tests.compiled import changed, error_codes, files_of, planned, verification_codes

NOT_IN_TRANSFORMERS = ("grok-1", "llama-3.3-nemotron-super-49b")
"""Models whose code only their repositories have, and which PARC's decoder lacks parts of."""
MISTRAL: dict[str, Any] = {
    **{"parc": 1, "name": "mistral", "model": "mistral-7b-v0.1"},
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64},
}


def random_spec(seed: int) -> dict[str, Any]:
    """Return a DeepSpeed spec of a random catalog model and a random job."""
    dice = Random(seed)
    names = [one for one in Library().names("models") if one not in NOT_IN_TRANSFORMERS]
    return {
        **{"parc": 1, "name": "random", "model": dice.choice(names)},
        "cluster": {"node": dice.choice(("dgx-h100", "dgx-a100")), "nodes": dice.choice((2, 16))},
        "job": {"sequence_length": 1024, "global_batch": dice.choice((256, 512))},
        "layout": {"zero_stage": dice.choice((1, 2, 3)), "micro_batch": 1},
        "emit": ["deepspeed", "torchrun"],
    }


def test_no_random_deepspeed_spec_is_refused_for_want_of_a_program() -> None:
    refused = []
    for seed in range(40):
        _, sink = planned(random_spec(seed))
        if "PARC-E10" in {one.code for one in sink.diagnostics}:
            refused.append(random_spec(seed)["model"])
    assert refused == []


@pytest.mark.parametrize("target", ["fsdp", "accelerate", "deepspeed"])
def test_a_model_of_transformers_gets_its_repository_and_sizes(target: str) -> None:
    files = files_of(MISTRAL | {"emit": [target, "torchrun"]})
    name = {"fsdp": "config", "accelerate": "job", "deepspeed": "train"}[target]
    model = json.loads(files[f"{target}/{name}.json"])["model"]
    sizes = {"layers": 32, "hidden": 4096, "vocab": 32000}
    assert model == {"source": "mistralai/Mistral-7B-v0.1", **sizes}
    assert {f"{target}/hf_model.py", f"{target}/data.py"} <= files.keys()
    assert f"{target}/model.py" not in files


@pytest.mark.parametrize("target", ["fsdp", "accelerate", "deepspeed"])
def test_programs_of_transformers_leave_out_no_part_of_a_model(target: str) -> None:
    spec = MISTRAL | {"model": "gemma-2-2b", "emit": [target, "torchrun"]}
    for program, reported in (("transformers", False), ("train.py", True)):
        _, sink = planned(spec | {"launch": {"program": program}})
        assert ("PARC-K06" in {one.code for one in sink.diagnostics}) == reported


def test_a_changed_repository_or_a_missing_module_is_reported() -> None:
    files = files_of(MISTRAL | {"emit": ["fsdp", "rankmap", "torchrun"]})
    text = files["fsdp/config.json"].replace("mistralai/Mistral-7B-v0.1", "someone/else")
    assert "A14" in verification_codes(files | {"fsdp/config.json": text})
    less = {path: text for path, text in files.items() if path != "fsdp/hf_model.py"}
    assert "A03" in verification_codes(less)


@pytest.mark.parametrize("target", ["fsdp", "deepspeed"])
def test_the_trainer_is_refused_without_accelerate(target: str) -> None:
    spec = MISTRAL | {"emit": [target, "torchrun"], "launch": {"program": "trainer"}}
    assert "E10" in error_codes(spec)


def test_a_pinned_tensor_parallel_size_is_refused_where_no_program_splits_the_model() -> None:
    for target, model in (("accelerate", "mistral-7b-v0.1"), ("fsdp", "bloom-176b")):
        spec = MISTRAL | {"model": model, "emit": [target, "torchrun"]}
        _, sink = planned(changed(spec, {"layout.tp": 2}))
        found = [one.finding for one in sink.diagnostics if one.code == "PARC-E10"]
        assert found[-1].fix == "layout.tp: 1", target
        assert "tp is 2, must be 1" in str(found[-1].label)


def test_fsdp_splits_a_model_of_transformers_without_sequence_parallelism() -> None:
    spec = MISTRAL | {"model": "qwen3-8b", "emit": ["fsdp", "rankmap", "torchrun"]}
    config = json.loads(files_of(changed(spec, {"layout.tp": 2}))["fsdp/config.json"])
    assert (config["mesh"]["tp"], config["sequence_parallel"]) == (2, False)
    refused = changed(spec, {"layout.tp": 2, "layout.sequence_parallel": True})
    assert "E11" in error_codes(refused)
    own = refused | {"launch": {"program": "train.py"}}
    assert json.loads(files_of(own)["fsdp/config.json"])["sequence_parallel"] is True


def test_a_repository_name_with_shell_text_reaches_no_script() -> None:
    hostile = {"source": "https://huggingface.co/$(id)/`id`", "name": "x", "window": 512}
    spec = MISTRAL | {"model": {"base": "mistral-7b-v0.1", **hostile}, "emit": ["fsdp", "torchrun"]}
    _, sink = planned(spec)
    assert "PARC-E10" in {one.code for one in sink.diagnostics}


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("qwen3_omni_moe_text", "no causal language model"),
        ("minimax_text_01", "not part of transformers"),
    ],
)
def test_families_that_transformers_cannot_build_get_no_program(
    family: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"model_type": family, "num_hidden_layers": 8, "num_attention_heads": 32}
    Path("config.json").write_text(json.dumps(config | {"head_dim": 64}), "utf-8")
    _, sink = planned(MISTRAL | {"model": "config.json", "emit": ["fsdp", "torchrun"]})
    labels = [str(one.finding.label) for one in sink.diagnostics if one.code == "PARC-E10"]
    assert any(reason in label for label in labels)
