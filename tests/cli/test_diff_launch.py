"""``parc diff LAUNCH OUTPUT``: what changes if the output runs instead of a launch file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.specs import parc, write_spec
from tests.compiled import example_files, write_files
from tests.lint.scripts import DEEPSPEED

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --partition=big
module load cuda/12.4
export HF_HOME=/scratch/hf
export MASTER_PORT=6000
srun --container-image=base.sqsh torchrun --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 64 \\
  --split 949,50,1 --lr 1e-4 --my-own 3
"""


@pytest.fixture
def out(tmp_path: Path) -> str:
    folder = str(tmp_path / "out")
    assert parc("compile", write_spec(tmp_path), "-o", folder).exit_code == 0
    return folder


def compared(launch: str, out: str) -> dict[str, Any]:
    """Return the JSON document of the diff."""
    result = parc("diff", launch, out, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_everything_that_differs_is_listed_with_both_values(tmp_path: Path, out: str) -> None:
    launch = tmp_path / "job.sbatch"
    launch.write_text(SCRIPT)
    found = compared(str(launch), out)
    arguments = {row["name"]: (row["old"], row["new"]) for row in found["arguments"]}
    assert arguments["--eval-iters"] == ("100 (default)", "0")
    assert arguments["--split"] == ("949,50,1", "969,30,1 (default)")
    assert arguments["--my-own"] == ("3", None)
    # Equal numbers in other forms, and parallel sizes at their defaults, are not differences.
    assert not {"--lr", "--context-parallel-size", "--micro-batch-size"} & arguments.keys()
    environment = {row["name"]: (row["old"], row["new"]) for row in found["environment"]}
    assert environment["HF_HOME"] == ("/scratch/hf", None)
    assert environment["OMP_NUM_THREADS"] == (None, "8")
    assert "MASTER_PORT" not in environment
    directives = {row["name"]: (row["old"], row["new"]) for row in found["directives"]}
    assert directives["--partition"] == ("big", None)
    assert directives["--container-image"] == ("base.sqsh", None)
    assert "--nodes" not in directives
    assert found["commands"] == ["line 4: module load cuda/12.4"]


def test_the_formats_and_the_exit_code_are_those_of_a_diff(tmp_path: Path, out: str) -> None:
    launch = tmp_path / "job.sbatch"
    launch.write_text(SCRIPT)
    text = parc("diff", str(launch), out, "--exit-code")
    assert text.exit_code == 3
    assert "launch arguments\n" in text.stdout
    assert "line 4: module load cuda/12.4" in text.stdout
    assert parc("diff", str(launch), out, "--format", "markdown").stdout.startswith("### parc diff")
    same = parc("diff", f"{out}/megatron/args.sh", out, "--exit-code")
    assert (same.exit_code, same.stdout) == (0, f"{out}/megatron/args.sh -> {out}: no changes\n")


def test_a_launch_file_is_compared_with_a_spec_that_is_compiled_in_memory(tmp_path: Path) -> None:
    launch = tmp_path / "run.sh"
    launch.write_text(SCRIPT)
    result = parc("diff", str(launch), write_spec(tmp_path), "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["framework"] == "megatron"


def test_a_config_is_compared_key_by_key(tmp_path: Path) -> None:
    config = tmp_path / "ds.json"
    config.write_text(DEEPSPEED)
    out = tmp_path / "out"
    write_files(example_files("llama-3-70b-offload"), out)
    arguments = {row["name"]: row for row in compared(str(config), str(out))["arguments"]}
    assert arguments["gradient_accumulation_steps"]["old"] == "4"
    assert arguments["gradient_accumulation_steps"]["new"] == "1"
    assert "bf16.enabled" not in arguments


@pytest.mark.parametrize("name", ["gpt2-small", "llama-2-70b-serve", "llama-65b-pipeline"])
def test_the_launch_files_of_an_output_do_not_differ_from_it(name: str, tmp_path: Path) -> None:
    files = example_files(name)
    write_files(files, tmp_path)
    launchers = (path for path in files if path.endswith((".sh", ".sbatch", "ds_config.json")))
    for path in launchers:
        assert compared(str(tmp_path / path), str(tmp_path))["changed"] is False, path
