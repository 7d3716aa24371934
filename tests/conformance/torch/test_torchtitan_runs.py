"""The emitted module trains in torchtitan's trainer: four ranks over gloo reach the losses of one.

Pipelines are not among the runs, because the trainer of 0.3.0 passes a list of micro-batches
(``arg_mbs``) to its schedule, which the schedules of torch 2.13 do not accept.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.compiled import files_of, write_files
from tests.conformance.real_runs import run_script

pytestmark = pytest.mark.conformance
PROGRAM = Path(__file__).with_name("titan_ranks.py")
STEPS = 3
WORDS = (
    "--training.disable_cuda_graphs",
    "--training.mixed_precision_param=float32",
    "--parallelism.spmd_backend=partial_dtensor",  # the default needs a newer torch than 2.13
    "--metrics.log_freq=1",
    "--metrics.disable_color_printing",
)
RUNS: dict[str, dict[str, Any]] = {
    "FSDP, recompute": {"zero_stage": 3, "recompute": "full"},
    "HSDP 2x2": {"zero_stage": 3, "dp_shard": 2},
    "TP 2 x FSDP": {"zero_stage": 3, "tp": 2},
}


def write_run(layout: dict[str, Any], folder: Path) -> Path:
    """Write the files of a run with two sequences per micro-batch and 16 per step."""
    spec = {
        "parc": 1,
        "name": "tiny",
        "model": {
            "name": "tiny",
            **{"layers": 4, "hidden": 64, "ffn": 128, "heads": 4, "kv_heads": 2, "head_dim": 16},
            "vocab": 128,
            "position": {"kind": "rope", "max_positions": 256},
        },
        "cluster": {
            "node": {"base": "dgx-h100", "gpus_per_node": 4, "nvlink_domain": 4},
            "nodes": 1,
        },
        "job": {"sequence_length": 32, "global_batch": 16, "steps": STEPS, "learning_rate": 0.02},
        "layout": {"micro_batch": 2, "tp": 1, "pp": 1, "cp": 1} | layout,
        "launch": {"program": str(PROGRAM), "args": list(WORDS)},
        "emit": ["torchtitan", "torchrun"],
    }
    write_files(files_of(spec), folder)
    return folder


def losses(output: str) -> list[float]:
    """Return one loss per step; all ranks that print the loss print the same value."""
    rows = re.findall(r"step: +(\d+) +loss: +(\d+\.\d+)", output)
    found = {int(step): {float(loss) for n, loss in rows if n == step} for step, _ in rows}
    assert all(len(values) == 1 for values in found.values()), found
    return [found[step].pop() for step in sorted(found)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Return the losses of one process with the same module and all parallel sizes 1."""
    folder = write_run({"zero_stage": 3}, tmp_path_factory.mktemp("one"))
    script = folder / "alone.sh"
    words = (*WORDS, "--parallelism.data_parallel_shard_degree=1")
    script.write_text(
        f"export PYTHONPATH={folder}/torchtitan:$PYTHONPATH\n"
        'exec torchrun --nproc-per-node 1 --master-port "$MASTER_PORT" '
        f"{PROGRAM} --module parc_titan --config run {' '.join(words)}\n"
    )
    found = losses(run_script(script))
    assert len(found) == STEPS == len(set(found))
    return found


@pytest.mark.parametrize("name", RUNS)
def test_a_launch_trains_to_the_losses_of_one_process(
    name: str, tmp_path: Path, expected: list[float]
) -> None:
    folder = write_run(RUNS[name], tmp_path)
    found = losses(run_script(folder / "torchrun/launch.sh"))
    assert found == pytest.approx(expected, abs=5e-5)
