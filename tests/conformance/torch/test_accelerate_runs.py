"""The emitted `accelerate launch` trains: four ranks over gloo reach the losses of plain torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.compiled import files_of, write_files
from tests.conformance.real_runs import reference, run_script

pytestmark = pytest.mark.conformance
HERE = Path(__file__).parent
REFERENCE, CPU_RANKS = HERE / "reference_accelerate.py", HERE / "cpu_ranks.py"
STEPS = 4
TINY: dict[str, Any] = {
    "parc": 1,
    "name": "tiny",
    "model": {
        "name": "tiny",
        **{"layers": 3, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "head_dim": 16},
        "vocab": 128,
        "position": {"kind": "rope", "max_positions": 256},
    },
    "cluster": {"node": {"base": "dgx-h100", "gpus_per_node": 4, "nvlink_domain": 4}, "nodes": 1},
    "job": {
        **{"sequence_length": 32, "global_batch": 16, "steps": STEPS, "learning_rate": 0.02},
        **{"min_learning_rate": 0, "lr_decay": "linear", "weight_decay": 0.3},
        **{"adam_beta1": 0.8, "adam_beta2": 0.9, "adam_epsilon": 1e-6, "gradient_clipping": 0.5},
    },
}
TORCH, DEEPSPEED = ["accelerate", "torchrun"], ["accelerate", "deepspeed", "torchrun"]
RUNS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "DDP": (TORCH, {"zero_stage": 0}),
    "FSDP2, recompute": (TORCH, {"zero_stage": 3, "recompute": "full"}),
    "HSDP 2x2": (TORCH, {"zero_stage": 3, "dp_shard": 2}),
    "ZeRO-1, optimizer on the host": (DEEPSPEED, {"zero_stage": 1, "offload": "cpu"}),
    "ZeRO-2": (DEEPSPEED, {"zero_stage": 2}),
    "ZeRO-3, recompute": (DEEPSPEED, {"zero_stage": 3, "recompute": "full"}),
}
"""Runs with two micro-batches of two sequences per rank and step: (targets, layout)."""


def write_run(name: str, folder: Path) -> Path:
    """Write the files of a run, changed for a CPU: fp32, torch's Adam, ranks without a GPU."""
    emit, layout = RUNS[name]
    half = emit == TORCH and layout["zero_stage"] > 0
    job = TINY["job"] | {"warmup_steps": 1 if emit == TORCH else 2}
    job |= {"gradient_precision": "bf16"} if half else {}
    spec = TINY | {"emit": emit, "job": job, "layout": {"micro_batch": 2, "tp": 1} | layout}
    write_files(files_of(spec), folder)
    config, program = folder / "accelerate/config.yaml", folder / "accelerate/train.py"
    config.write_text(config.read_text().replace("mixed_precision: bf16", "mixed_precision: 'no'"))
    (folder / "accelerate/cpu_ranks.py").write_text(CPU_RANKS.read_text())
    text = program.read_text()
    program.write_text(text.replace("import argparse\n", "import argparse\nimport cpu_ranks\n", 1))
    if emit == DEEPSPEED:
        set_fp32(folder / "deepspeed/ds_config.json")
    return folder


def set_fp32(config_file: Path) -> None:
    config = json.loads(config_file.read_text())
    del config["bf16"], config["data_types"]
    config["optimizer"]["params"]["torch_adam"] = True
    config["zero_force_ds_cpu_optimizer"] = False
    config["zero_optimization"].get("offload_optimizer", {}).pop("pin_memory", None)
    config_file.write_text(json.dumps(config))


def losses(output: str) -> list[float]:
    return [float(one) for one in re.findall(r"step \d+ loss (\d+\.\d{6}) ", output)]


@pytest.mark.parametrize("name", RUNS)
def test_a_launch_trains_to_the_losses_of_plain_torch(name: str, tmp_path: Path) -> None:
    folder = write_run(name, tmp_path)
    script, env = folder / "torchrun/launch.sh", {"ACCELERATE_TORCH_DEVICE": "cpu"}
    if name == "DDP":
        env = {"ACCELERATE_USE_CPU": "true"}
    output = run_script(script, **env)
    found, alone = losses(output), losses(reference(REFERENCE, str(folder)))
    assert len(found) == len(set(alone)) == STEPS  # only the first rank prints
    assert found == pytest.approx(alone, abs=2e-5)


REPORT = """
    for part in model.modules():
        group = getattr(part, "_get_fsdp_state", lambda: None)()
        if group is not None and group._fsdp_param_group is not None:
            print("reduces in", group._fsdp_param_group.mp_policy.reduce_dtype, flush=True)
"""
"""Lines for the program that print the format in which torch reduces gradients."""


def test_fsdp2_reduces_gradients_in_the_planned_format(tmp_path: Path) -> None:
    job = TINY["job"] | {"warmup_steps": 1, "steps": 2}
    layout = {"micro_batch": 2, "tp": 1, "zero_stage": 3}
    write_files(files_of(TINY | {"emit": TORCH, "job": job, "layout": layout}), tmp_path)
    (tmp_path / "accelerate/cpu_ranks.py").write_text(CPU_RANKS.read_text())
    program = tmp_path / "accelerate/train.py"
    text = program.read_text().replace(
        "import argparse\n", "import argparse\nimport cpu_ranks\n", 1
    )
    end = "    accelerator.end_training()\n"
    assert end in text
    program.write_text(text.replace(end, f"{REPORT}{end}"))
    output = run_script(tmp_path / "torchrun/launch.sh", ACCELERATE_TORCH_DEVICE="cpu")
    assert set(re.findall(r"reduces in (torch\.[a-z]+[0-9]+)", output)) == {"torch.float32"}
