"""Emitted DeepSpeed launches train: four ranks over gloo reach the losses of plain torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.compiled import files_of, write_files
from tests.conformance.real_runs import reference, run_script

pytestmark = pytest.mark.conformance
REFERENCE = Path(__file__).with_name("reference_training.py")
TINY: dict[str, Any] = {
    "parc": 1,
    "name": "tiny",
    "model": {
        "name": "tiny",
        **{"layers": 4, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "head_dim": 16},
        "vocab": 256,
        "position": {"kind": "rope", "max_positions": 256},
    },
    "cluster": {"node": {"base": "dgx-a100", "gpus_per_node": 4}, "nodes": 1},
    "job": {"sequence_length": 64, "global_batch": 8, "steps": 4, "learning_rate": 0.01},
    "emit": ["deepspeed", "rankmap", "torchrun"],
}
ONE = {"tp": 1, "cp": 1, "pp": 1, "micro_batch": 1, "zero_stage": 1, "recompute": "none"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "zero-1": {"dp": 4},
    "zero-3": {"dp": 4, "zero_stage": 3},
    "zero-2, recompute": {"dp": 4, "zero_stage": 2, "recompute": "full"},
    "pipeline": {"pp": 2, "dp": 2},
    "pipeline, optimizer on the host": {"pp": 2, "dp": 2, "offload": "cpu"},
    "pipeline of cut tensors": {"pp": 2, "tp": 2, "dp": 1},
    "AutoTP": {"tp": 2, "dp": 2},
    "sequences": {"cp": 2, "dp": 2},
}
EXPERTS = {"count": 4, "top_k": 2, "size": 64}


def write_run(spec: dict[str, Any], folder: Path) -> Path:
    """Write the files of a spec, changed for a CPU: fp32, and torch's Adam instead of the CUDA
    one.
    """
    write_files(files_of(spec), folder)
    config_file = folder / "deepspeed/ds_config.json"
    config = json.loads(config_file.read_text("utf-8"))
    del config["bf16"], config["data_types"]
    config["optimizer"]["params"]["torch_adam"] = True
    config["zero_force_ds_cpu_optimizer"] = False
    config["zero_optimization"].get("offload_optimizer", {}).pop("pin_memory", None)
    config_file.write_text(json.dumps(config), "utf-8")
    return folder


def losses(output: str) -> list[float]:
    """Return the losses even if the output of another rank splits a line, because all ranks write
    to one stream.
    """
    return [float(number) for number in re.findall(r"step \d+ loss (\d+\.\d{6})", output)]


def spec_of(layout: dict[str, Any]) -> dict[str, Any]:
    return TINY | {"layout": ONE | layout}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of one process of plain torch."""
    folder = write_run(spec_of({"dp": 4}), tmp_path_factory.mktemp("one"))
    return reference(REFERENCE, str(folder / "deepspeed"), str(folder))


@pytest.fixture(scope="module")
def expected(alone: str) -> list[float]:
    """Return the losses of one process of plain torch."""
    found = losses(alone)
    assert len(found) == 4
    assert len(set(found)) == 4
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_launch_trains_to_the_losses_of_plain_torch(
    name: str, tmp_path: Path, expected: list[float]
) -> None:
    folder = write_run(spec_of(LAYOUTS[name]), tmp_path)
    found = losses(run_script(folder / "torchrun/launch.sh"))
    assert found == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("name", ["zero-1", "zero-3", "pipeline"])
def test_fine_tuning_starts_at_step_0_with_the_weights_of_another_run(
    name: str, tmp_path: Path, expected: list[float], alone: str
) -> None:
    base = tmp_path / "base"
    first = spec_of(LAYOUTS[name])
    first["job"] = TINY["job"] | {"checkpoint_dir": str(base)}
    tuned = {"kind": "finetune", "load_dir": str(base), "checkpoint_dir": str(tmp_path / "saved")}
    second = first | {"job": TINY["job"] | tuned, "name": "tuned"}
    script = write_run(second, tmp_path / "second") / "torchrun/launch.sh"
    with pytest.raises(AssertionError, match="base does not contain a checkpoint"):
        run_script(script)
    folder = write_run(first, tmp_path / "first")
    trained = losses(run_script(folder / "torchrun/launch.sh"))
    assert trained == pytest.approx(expected, abs=2e-5)
    output = run_script(script)
    assert re.findall(r"step (\d+) loss", output) == ["1", "2", "3", "4"]
    (first_loss,) = re.findall(r"first batch: loss (\d+\.\d{6})", alone)
    assert losses(output)[0] == pytest.approx(float(first_loss), abs=2e-5)
    assert losses(output)[0] != pytest.approx(expected[0], abs=1e-4)


def test_the_deepspeed_launcher_starts_the_same_run(tmp_path: Path, expected: list[float]) -> None:
    folder = write_run(spec_of({"dp": 4, "zero_stage": 3}), tmp_path)
    output = run_script(folder / "deepspeed/launch.sh")
    assert losses(output) == pytest.approx(expected, abs=2e-5)


def test_a_model_with_experts_trains(tmp_path: Path) -> None:
    spec = spec_of({"dp": 4, "ep": 2, "etp": 1})
    spec["model"] = TINY["model"] | {"experts": EXPERTS}
    found = losses(run_script(write_run(spec, tmp_path) / "torchrun/launch.sh"))
    assert len(found) == 4
    assert max(found) < 7


def set_steps(folder: Path, steps: int) -> None:
    """Let the run end early, as if the job had been stopped."""
    file = folder / "deepspeed/train.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"steps": steps}), "utf-8")


@pytest.mark.parametrize("name", ["zero-3", "pipeline", "AutoTP"])
def test_the_next_job_continues_from_the_last_checkpoint(
    name: str, tmp_path: Path, expected: list[float]
) -> None:
    job = TINY["job"] | {"checkpoint_dir": str(tmp_path / "saved"), "checkpoint_interval": 2}
    folder = write_run(spec_of(LAYOUTS[name]) | {"job": job}, tmp_path)
    set_steps(folder, 3)  # the last checkpoint is that of the end, not of the interval
    script = folder / "torchrun/launch.sh"
    assert losses(run_script(script)) == pytest.approx(expected[:3], abs=2e-5)
    set_steps(folder, 4)
    assert losses(run_script(script)) == pytest.approx(expected[3:], abs=2e-5)
