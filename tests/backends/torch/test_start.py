"""The emitted start.py decides from which checkpoint or weights a training program starts."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.compiled import changed, error_codes, files_of, planned

SPEC: dict[str, Any] = {
    **{"parc": 1, "name": "tuned", "model": "llama-3-8b"},
    "cluster": {"node": "dgx-h100", "nodes": 1},
    "job": {"sequence_length": 4096, "global_batch": 64, "steps": 10},
    "launch": {"program": "decoder"},
}
TARGETS = {"fsdp": "config", "accelerate": "job", "deepspeed": "train"}
SAVED, BASE = "saved", "base"


def start_module(target: str, folder: Path, kind: str) -> dict[str, Any]:
    """Return the names in start.py of a job that saves to SAVED and starts from BASE in ``folder``.

    The functions run as the emitted program calls them.
    """
    job = {"kind": kind, "load_dir": str(folder / BASE), "checkpoint_dir": str(folder / SAVED)}
    spec = SPEC | {"emit": [target, "torchrun"], "job": SPEC["job"] | job}
    if target != "accelerate" and kind == "finetune":
        assert f"{target}/hf_model.py" not in files_of(spec)
    files = files_of(spec)
    for name in ("start.py", f"{TARGETS[target]}.json"):
        (folder / name).write_text(files[f"{target}/{name}"], "utf-8")
    return runpy.run_path(str(folder / "start.py"))


def newest(folder: str) -> str | None:
    """Return the newest of checkpoints that are folders named step-N."""
    return max((str(one) for one in Path(folder).glob("step-*")), default=None)


def find(module: dict[str, Any], **options: bool) -> tuple[str, bool, bool]:
    start = module["find_start"](newest, "step-N", **options)
    return Path(start.checkpoint).name, start.weights_only, start.resumes


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_a_run_starts_from_the_base_once_and_then_from_its_own_checkpoints(
    target: str, kind: str, tmp_path: Path
) -> None:
    module = start_module(target, tmp_path, kind)
    with pytest.raises(SystemExit, match=r"base does not contain .*checkpoint \(step-N\)"):
        find(module)
    (tmp_path / BASE / "step-9").mkdir(parents=True)
    assert find(module) == ("step-9", kind == "finetune", False)
    (tmp_path / SAVED / "step-4").mkdir(parents=True)
    assert find(module) == ("step-4", False, True)


def test_weights_of_hugging_face_are_used_or_refused(tmp_path: Path) -> None:
    module = start_module("fsdp", tmp_path, "finetune")
    assert module["pretrained_weights"]() == ""
    exported = tmp_path / BASE / "hugging-face"
    exported.mkdir(parents=True)
    (exported / "config.json").write_text("{}")
    assert module["pretrained_weights"]() == str(exported)
    assert find(module) == ("", False, False)
    with pytest.raises(SystemExit, match=r"launch\.program: transformers"):
        find(module, reads_pretrained=False)
    (tmp_path / BASE / "config.json").write_text("{}")
    assert module["pretrained_weights"]() == str(tmp_path / BASE)


def test_a_checkpoint_that_cannot_be_loaded_without_its_optimizer_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / BASE / "step-9").mkdir(parents=True)
    module = start_module("accelerate", tmp_path, "finetune")
    with pytest.raises(SystemExit, match=r"base does not contain weights .*\(config.json\)$"):
        find(module, reads_weights=False)
    module = start_module("accelerate", tmp_path, "pretrain")
    assert find(module, reads_weights=False) == ("step-9", False, False)


def test_a_pretrained_base_with_all_steps_of_the_run_is_refused(tmp_path: Path) -> None:
    start = start_module("fsdp", tmp_path, "pretrain")["Start"]
    start("/base/step-9").check_steps(9, 10)
    with pytest.raises(SystemExit, match=r"has 10 steps.*set job\.kind: finetune"):
        start("/base/step-10").check_steps(10, 10)
    start("/saved/step-10", resumes=True).check_steps(10, 10)


@pytest.mark.parametrize("target", ["fsdp", "deepspeed"])
def test_fine_tuning_uses_transformers_unless_the_spec_asks_for_the_decoder(target: str) -> None:
    job = SPEC["job"] | {"kind": "finetune", "load_dir": "/base"}
    spec = SPEC | {"emit": [target, "torchrun"], "job": job, "launch": {}}
    assert f"{target}/hf_model.py" in files_of(spec)
    assert f"{target}/model.py" in files_of(changed(spec, {"launch.program": "decoder"}))
    assert f"{target}/model.py" in files_of(changed(spec, {"job.kind": "pretrain"}))
    own = {"name": "own", "layers": 4, "hidden": 256, "heads": 4, "vocab": 1024, "ffn": 512}
    own["position"] = {"kind": "rope", "max_positions": 4096}
    assert f"{target}/model.py" in files_of(spec | {"model": own})
    model = json.loads(files_of(spec)[f"{target}/{TARGETS[target]}.json"])["model"]
    assert model["source"] == "meta-llama/Meta-Llama-3-8B"


@pytest.mark.parametrize("target", ["fsdp", "deepspeed", "accelerate"])
def test_the_decoder_refuses_a_repository_and_models_that_it_cannot_build(target: str) -> None:
    job = {"kind": "finetune", "load_dir": "meta-llama/Meta-Llama-3-8B"}
    spec = SPEC | {"emit": [target, "torchrun"], "job": SPEC["job"] | job}
    _, sink = planned(spec)
    found = [one.finding.fix for one in sink.diagnostics if one.code == "PARC-E10"]
    assert found == ([] if target == "accelerate" else ["launch.program: transformers"])
    assert not error_codes(changed(spec, {"launch.program": "transformers"}))
    assert "E10" in error_codes(spec | {"model": "gemma-2-9b"})


@pytest.mark.parametrize(
    ("load", "valid"), [("/base", True), ("gs://bucket/base", True), ("org/model", False)]
)
def test_torchtitan_starts_only_from_an_absolute_path_or_a_uri(load: str, valid: bool) -> None:
    job = SPEC["job"] | {"kind": "finetune", "load_dir": load}
    spec = SPEC | {"emit": ["torchtitan", "torchrun"], "job": job, "launch": {}}
    assert error_codes(spec) == (set() if valid else {"E11"})


def test_torchtitan_takes_only_the_weights_to_fine_tune_and_the_optimizer_to_continue() -> None:
    texts = {}
    for kind in ("pretrain", "finetune"):
        job = SPEC["job"] | {"kind": kind, "load_dir": '/base "x"'}
        spec = SPEC | {"emit": ["torchtitan", "torchrun"], "job": job, "launch": {}}
        texts[kind] = files_of(spec)["torchtitan/parc_titan.py"]
    detected = "in_hugging_face_format('/base \"x\"')"
    assert "initial_load_model_only=True," in texts["finetune"]
    assert f"initial_load_model_only={detected}," in texts["pretrain"]
    assert all(f"initial_load_in_hf={detected}," in text for text in texts.values())


def test_fine_tuning_into_the_folder_of_the_base_is_an_error_with_a_fix_that_works() -> None:
    job = {"kind": "finetune", "load_dir": "/base/", "checkpoint_dir": "/base"}
    spec = SPEC | {"emit": ["fsdp"], "job": SPEC["job"] | job, "launch": {}}
    _, sink = planned(spec)
    (fix,) = [one.finding.fix for one in sink.diagnostics if one.code == "PARC-X19"]
    assert fix == "job.checkpoint_dir: /base-finetuned"
    assert not error_codes(changed(spec, {"job.checkpoint_dir": "/base-finetuned"}))
    assert not error_codes(changed(spec, {"job.kind": "pretrain"}))
