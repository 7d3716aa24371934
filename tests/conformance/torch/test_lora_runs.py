"""Emitted programs train LoRA adapters on two ranks, resume, and save what plain peft loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.real_runs import reference, run_script, write_planned_files
from tests.conformance.torch.test_accelerate_runs import CPU_RANKS, losses

pytestmark = pytest.mark.conformance
HERE = Path(__file__).parent
PRETRAINED, REFERENCE = HERE / "tiny_pretrained.py", HERE / "reference_lora.py"
TARGETS = ["down_proj", "q_proj", "v_proj"]
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "FSDP2, recompute": ("fsdp", {"zero_stage": 3, "recompute": "full"}),
    "FSDP2, weights stay gathered": ("fsdp", {"zero_stage": 2}),
    "DDP": ("fsdp", {"zero_stage": 0}),
    "Accelerate, FSDP2, recompute": ("accelerate", {"zero_stage": 3, "recompute": "full"}),
    "Accelerate, DDP": ("accelerate", {"zero_stage": 0}),
}
STEPS = 3
ROUNDING = 2e-6


def write_files(kind: str, folder: Path) -> str:
    """Write the base model and the files of a run, and return its target."""
    target, layout = RUNS[kind]
    reference(PRETRAINED, str(folder / "base"))
    spec = {
        **{"parc": 1, "name": "tiny", "model": "base/config.json"},
        "cluster": {
            "node": {"base": "dgx-h100", "gpus_per_node": 2, "nvlink_domain": 2},
            "nodes": 1,
        },
        "job": {
            **{"kind": "finetune", "load_dir": str(folder / "base")},
            **{"checkpoint_dir": str(folder / "saved"), "checkpoint_interval": 2},
            **{"sequence_length": 32, "global_batch": 8, "steps": STEPS, "learning_rate": 0.05},
            **{"lr_decay": "constant", "warmup_steps": 0, "gradient_clipping": 0.5},
            "lora": {"rank": 4, "alpha": 16, "targets": TARGETS},
        },
        "layout": {"micro_batch": 2, "recompute": "none"} | layout,
        "emit": [target, "torchrun"],
    }
    write_planned_files(spec, folder)
    if target == "accelerate":
        change_for_cpu(folder / "accelerate")
    if target == "accelerate" or layout["zero_stage"] == 0:
        # No FSDP2 converts the frozen weights, which are stored in bf16, to the format of the test.
        model = folder / target / "hf_model.py"
        text = model.read_text()
        model.write_text(text.replace("torch.bfloat16 if ADAPTERS", "torch.float32 if ADAPTERS"))
    return target


def change_for_cpu(folder: Path) -> None:
    """Change the files of Accelerate for ranks without a GPU, which compute in fp32."""
    config, program = folder / "config.yaml", folder / "train.py"
    config.write_text(config.read_text().replace("mixed_precision: bf16", "mixed_precision: 'no'"))
    (folder / "cpu_ranks.py").write_text(CPU_RANKS.read_text())
    text = program.read_text()
    program.write_text(text.replace("import argparse\n", "import argparse\nimport cpu_ranks\n", 1))


@pytest.mark.parametrize("kind", RUNS)
def test_adapters_are_trained_resumed_and_saved_for_peft(kind: str, tmp_path: Path) -> None:
    target = write_files(kind, tmp_path)
    script, words = tmp_path / "torchrun/launch.sh", ["--device", "cpu", "--dtype", "fp32"]
    words = words if target == "fsdp" else []
    env = {"ACCELERATE_TORCH_DEVICE": "cpu"}
    if kind == "Accelerate, DDP":
        env = {"ACCELERATE_USE_CPU": "true"}
    first = losses(run_script(script, *words, **env))
    assert len(first) == STEPS
    found = json.loads(
        reference(REFERENCE, "evaluate", str(tmp_path / target), f"{tmp_path}/saved/adapter", "3")
    )
    assert found["settings"] == [4, 16, TARGETS]
    assert found["base"] == str(tmp_path / "base")
    assert len(found["tensors"]) == 2 * 2 * len(TARGETS)
    assert (found["missing"], found["untrained"]) == ([], [])
    assert found["formats"] == ["torch.float32"]
    assert abs(found["after"] - found["before"]) > 1000 * ROUNDING
    # The loss of the next step is that of the base model with the saved adapter: the program has
    # changed nothing else, saved what it trained, and continued from it.
    again = losses(run_script(script, *words, "--steps", str(STEPS + 1), **env))
    assert again == pytest.approx([found["after"]], abs=ROUNDING)


def test_two_ranks_reach_the_losses_of_one_process(tmp_path: Path) -> None:
    write_files("FSDP2, recompute", tmp_path)
    words = ("--device", "cpu", "--dtype", "fp32")
    sharded = losses(run_script(tmp_path / "torchrun/launch.sh", *words))
    alone = losses(reference(REFERENCE, "train", str(tmp_path / "fsdp"), str(STEPS)))
    assert sharded == pytest.approx(alone, abs=ROUNDING)
    assert len(set(alone)) == STEPS
