"""Tests of models of the Hugging Face hub that a spec names by their id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parc.compiler.catalog.find_model import find_model
from parc.compiler.catalog.huggingface.hub_cache import cached_config, split_hub_id
from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Sink
from parc.compiler.ir import ServingPlan
from tests.compiled import planned

CONFIG = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4},
    **{"max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
}


def add_snapshot(cache: Path, commit: str, layers: int = 2) -> None:
    """Write a config of the model Org/Tiny as the revision ``commit`` into the cache."""
    folder = cache / "models--Org--Tiny" / "snapshots" / commit
    folder.mkdir(parents=True)
    text = json.dumps({**CONFIG, "num_hidden_layers": layers})
    (folder / "config.json").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen3-8B", ("Qwen/Qwen3-8B", "")),
        ("google/gemma-3-4b-it#text_config", ("google/gemma-3-4b-it", "text_config")),
        ("./Qwen/Qwen3-8B", None),
        ("../Qwen3-8B", None),
        ("/Qwen/Qwen3-8B", None),
        ("Qwen/Qwen3-8B/config.json", None),
        ("configs/llama.json", None),
        ("llama-3-8b", None),
    ],
)
def test_ids_of_the_hub_differ_from_paths(name: str, expected: tuple[str, str] | None) -> None:
    assert split_hub_id(name) == expected


def test_the_downloaded_config_of_a_hub_id_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    add_snapshot(tmp_path / "hub", "abc", layers=3)
    sink = Sink()
    found = find_model("Org/Tiny", Library(tmp_path, tmp_path), sink, "model")
    assert not sink.failed()
    assert found is not None
    assert (found["layers"], found["name"]) == (3, "Tiny")


def test_a_folder_next_to_the_spec_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    add_snapshot(tmp_path / "hub", "abc", layers=3)
    (tmp_path / "Org" / "Tiny").mkdir(parents=True)
    (tmp_path / "Org" / "Tiny" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    found = find_model("Org/Tiny", Library(tmp_path, tmp_path), Sink(), "model")
    assert found is not None
    assert found["layers"] == 2


def test_a_hub_id_that_was_not_downloaded_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    sink = Sink()
    assert find_model("Org/Tiny", Library(tmp_path), sink, "model") is None
    (found,) = sink.diagnostics
    assert found.code == "PARC-K07"
    assert "`hf download Org/Tiny config.json`" in found.finding.help
    assert "Org/Tiny is neither a file" in found.finding.message


def test_the_catalog_has_models_that_were_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    library, sink = Library(tmp_path), Sink()
    found = find_model("Qwen/Qwen3-32B", library, sink, "model")
    assert found == find_model("qwen3-32b", library, sink, "model")
    assert not sink.diagnostics
    # Another checkpoint of the same architecture may have another context length.
    assert find_model("Qwen/Qwen2.5-7B-Instruct", library, sink, "model") is None
    assert sink.diagnostics[0].finding.fix == "model: qwen2.5-7b"


def test_a_service_runs_the_checkpoint_that_the_spec_names_as_its_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    traffic = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 8}
    spec = {
        **{"parc": 1, "name": "hub", "cluster": {"node": "dgx-h100", "nodes": 1}},
        "job": {"kind": "serve", "traffic": traffic},
    }
    for name, checkpoint in (
        ("meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B-Instruct"),
    ):
        plan, sink = planned({**spec, "model": name})
        assert isinstance(plan, ServingPlan), sink.diagnostics
        assert plan.problem.service.checkpoint == checkpoint


def test_of_several_revisions_the_one_of_main_is_read(tmp_path: Path) -> None:
    environment = {"HF_HOME": str(tmp_path)}
    assert cached_config("Org/Tiny", environment) is None
    add_snapshot(tmp_path / "hub", "abc", layers=3)
    add_snapshot(tmp_path / "hub", "def", layers=4)
    assert cached_config("Org/Tiny", environment) is None
    refs = tmp_path / "hub" / "models--Org--Tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text("def", encoding="utf-8")
    text = cached_config("Org/Tiny", {"XDG_CACHE_HOME": "/none", **environment})
    assert text is not None
    assert json.loads(text)["num_hidden_layers"] == 4
