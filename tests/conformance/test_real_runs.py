"""Launch scripts train with torch and DeepSpeed to the losses of one process."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.real_runs import losses, reference, run_script

pytestmark = pytest.mark.conformance
PROGRAM = Path(__file__).with_name("toy_training.py")
RANKS = 4


@cache
def reference_losses() -> list[float]:
    return losses(reference(PROGRAM))


def launch(folder: Path, words: str) -> list[float]:
    """Return the losses of a launch like those that PARC emits."""
    script = folder / "launch.sh"
    script.write_text(
        "set -euo pipefail\n"
        f"exec torchrun --nnodes 1 --nproc-per-node {RANKS} --node-rank 0 --max-restarts 0 "
        f'--master-addr 127.0.0.1 --master-port "$MASTER_PORT" {PROGRAM} {words}\n'
    )
    return losses(run_script(script))


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "hsdp"])
def test_torch_trains_to_the_losses_of_one_process(kind: str, tmp_path: Path) -> None:
    assert launch(tmp_path, kind) == pytest.approx(reference_losses(), abs=2e-6)


@pytest.mark.parametrize("stage", [1, 3])
def test_deepspeed_trains_to_the_losses_of_one_process(stage: int, tmp_path: Path) -> None:
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}
    config_file = tmp_path / "ds_config.json"
    config_file.write_text(json.dumps(config | {"zero_optimization": {"stage": stage}}))
    found = launch(tmp_path, f"deepspeed {config_file}")
    assert found == pytest.approx(reference_losses(), abs=2e-6)


def test_a_script_that_fails_or_hangs_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    script.write_text("echo before; exit 3\n")
    with pytest.raises(AssertionError, match=r"ended with 3:\nbefore"):
        run_script(script)
    script.write_text("echo before; sleep 60 & wait\n")
    with pytest.raises(AssertionError, match=r"ran past 1 s:\nbefore"):
        run_script(script, seconds=1)
