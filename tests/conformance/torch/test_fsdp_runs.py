"""The emitted FSDP program trains: four ranks over gloo reach the losses of one process."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.compiled import files_of, write_files
from tests.conformance.real_runs import LONGEST_SECONDS, environment, run_script
from tests.conformance.tool_checkers import tool_python

pytestmark = pytest.mark.conformance
LAYOUTS: dict[str, dict[str, Any]] = {
    "DDP": {"zero_stage": 0},
    "FSDP2": {"zero_stage": 3},
    "FSDP2, weights stay gathered": {"zero_stage": 2, "recompute": "full"},
    "HSDP 2x2": {"zero_stage": 3, "dp_shard": 2},
    "TP 2 x FSDP2": {"zero_stage": 3, "tp": 2},
}
HOST = {"base": "dgx-h100", "gpus_per_node": 4, "nvlink_domain": 4}
OPTIMIZER: dict[str, Any] = {
    "learning_rate": 0.01,
    "min_learning_rate": 0.001,
    "warmup_steps": 1,
    "lr_decay": "linear",
    "adam_beta1": 0.8,
    "adam_beta2": 0.9,
    "adam_epsilon": 1e-6,
    "weight_decay": 0.3,
    "gradient_clipping": 0.5,
}
ONE_PROCESS = """
import torch
from data import sequence
from model import build_model, initialize, loss_of
from parallelize import CONFIG
model = build_model()
initialize(model)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.3
)
for step, rate in enumerate((0.01, 0.01, 0.0055)):
    optimizer.param_groups[0]["lr"] = rate
    batch = CONFIG["global_batch"]
    rows = range(step * batch, (step + 1) * batch)
    loss = loss_of(model, torch.stack([sequence(row, CONFIG["model"]["vocab"]) for row in rows]))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss {loss.item():.6f} ")
rows = range(CONFIG["global_batch"])
loss = loss_of(model, torch.stack([sequence(row, CONFIG["model"]["vocab"]) for row in rows]))
print(f"loss {loss.item():.6f} ")
"""
"""The same steps without a mesh, with the same model and data, and OPTIMIZER as numbers; at last
the loss of the first batch with the trained weights.
"""


def emit(folder: Path, layout: dict[str, Any], **job: Any) -> None:
    """Write the files of a tiny model on four GPUs."""
    spec = {
        "parc": 1,
        "name": "tiny",
        "model": {
            "name": "tiny",
            "layers": 3,
            "hidden": 64,
            "ffn": 128,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 16,
            "vocab": 128,
            "position": {"kind": "rope", "max_positions": 256},
        },
        "cluster": {
            "node": {"base": "dgx-h100", "gpus_per_node": 4, "nvlink_domain": 4},
            "nodes": 1,
        },
        "job": {"sequence_length": 32, "global_batch": 8, "steps": 3} | OPTIMIZER | job,
        "layout": layout | {"micro_batch": 1},
        "emit": ["fsdp", "torchrun"],
    }
    write_files(files_of(spec), folder)


def losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d{6}) ", output)]


@cache
def reference(folder: Path) -> list[float]:
    """Return the losses of one process on the emitted model and data."""
    emit(folder, {"zero_stage": 3})
    done = subprocess.run(
        [tool_python("torch"), "-c", ONE_PROCESS],
        cwd=folder / "fsdp",
        env=environment() | {"PYTHONPATH": str(folder / "fsdp")},
        capture_output=True,
        text=True,
        check=True,
        timeout=LONGEST_SECONDS,
    )
    return losses(done.stdout)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_emitted_program_trains_to_the_losses_of_one_process(
    kind: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    emit(tmp_path, LAYOUTS[kind])
    script = tmp_path / "torchrun" / "launch.sh"
    found = losses(run_script(script, "--device", "cpu", "--dtype", "fp32"))
    alone = reference(tmp_path_factory.getbasetemp() / "alone")
    assert len(found) == 3
    assert found == pytest.approx(alone[:3], abs=2e-6)


@pytest.mark.parametrize("kind", ["DDP", "TP 2 x FSDP2"])
def test_fine_tuning_starts_at_step_0_with_the_weights_of_another_run_and_then_resumes(
    kind: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = ("--device", "cpu", "--dtype", "fp32")
    base, saved = tmp_path / "base", tmp_path / "saved"
    tuned = {"kind": "finetune", "load_dir": str(base), "checkpoint_dir": str(saved)}
    emit(tmp_path / "tune", LAYOUTS[kind], **tuned)
    script = tmp_path / "tune/torchrun/launch.sh"
    with pytest.raises(AssertionError, match="base does not contain a checkpoint"):
        run_script(script, *words)
    emit(tmp_path / "first", LAYOUTS[kind], checkpoint_dir=str(base), checkpoint_interval=2)
    run_script(tmp_path / "first/torchrun/launch.sh", *words)
    alone = reference(tmp_path_factory.getbasetemp() / "alone")
    output = run_script(script, *words, "--steps", "2")
    assert losses(output)[0] == pytest.approx(alone[3], abs=2e-6)
    assert re.findall(r"step (\d+) loss", output) == ["1", "2"]
    assert re.findall(r"step (\d+) loss", run_script(script, *words)) == ["3"]
