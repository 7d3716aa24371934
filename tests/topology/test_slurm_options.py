"""GPU types and bindings in the options of sbatch and srun, and variables that sbatch ignores."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics.table_yaml import parse_table
from parc.compiler.tools.lint.lint_file import lint_text
from parc.compiler.tools.lint.options import LintOptions
from tests.topology.reading import read

PROGRAM = "pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 4"


def imported(script: str) -> tuple[dict[str, Any], str]:
    """Return (fragment, its text) of a batch script."""
    text, sink = read("sbatch", f"#!/bin/bash\n{script}\n")
    assert not sink.failed()
    return dict(parse_table(text)), text


@pytest.mark.parametrize(
    ("option", "gpu"),
    [
        ("--gres=gpu:l40s:4", "l40s-48gb"),
        ("--gpus-per-node=mi300x:8", "mi300x-192gb"),
        ("--gres=gpu:nvidia_h100_80gb_hbm3:8", "h100-sxm-80gb"),
        ("-G b200:16", "b200-180gb"),
        ("--gres=gpu:8", None),
        ("--gres=lustre:1,gpu:8", None),
    ],
)
def test_a_gpu_type_with_one_meaning_is_imported(option: str, gpu: str | None) -> None:
    spec, text = imported(f"#SBATCH --nodes=2 {option}")
    assert spec["cluster"].get("gpu") == gpu
    assert "GPU type" not in text


@pytest.mark.parametrize(
    ("option", "note"),
    [
        ("--gres=gpu:a100:4", "GPU type a100, line 2: set cluster.gpu to one of a100-sxm-80gb"),
        ("--gpus-per-node=mi250:8", "GPU type mi250, line 2: set cluster.gpu to its name in parc"),
    ],
)
def test_a_gpu_type_with_several_meanings_is_noted(option: str, note: str) -> None:
    spec, text = imported(f"#SBATCH --nodes=2 {option}")
    assert "gpu" not in spec["cluster"]
    assert f"# {note}" in text


@pytest.mark.parametrize("option", ["--mpi=pmix", "--cpu-bind=mask_cpu:0xff", "-c56"])
def test_an_option_of_srun_that_binds_tasks_is_reported(option: str) -> None:
    _, text = imported(f"#SBATCH --nodes=2\nsrun --label {option} python {PROGRAM}")
    assert f"# not carried over, line 3: srun {option}\n" in text
    assert "srun --label" not in text


def test_a_script_that_srun_starts_around_the_program_is_reported() -> None:
    _, text = imported(f'#SBATCH -N 2\nCMD="{PROGRAM}"\nsrun --label bind.sh $CMD')
    assert "# not carried over, line 4: bind.sh, which srun starts with the program" in text
    _, text = imported(f"#SBATCH -N 2\nsrun --label python {PROGRAM}")
    assert "which srun starts" not in text


def codes(script: str) -> list[str]:
    """Return the codes of the errors that lint reports in a script."""
    sink, _ = lint_text(f"#!/bin/bash\n{script}\n", "job.sh", LintOptions(allow_unknown=True))
    return [one.code.removeprefix("PARC-") for one in sink.diagnostics]


@pytest.mark.parametrize("value", ["$NODES", "${NODES}", "`cat hosts`"])
def test_a_variable_in_a_directive_is_an_error(value: str) -> None:
    assert "L44" in codes(f"#SBATCH --nodes={value}\nsrun python train.py")


def test_patterns_and_remarks_in_directives_are_correct() -> None:
    line = '#SBATCH --nodes=2 --output=logs/%x.%j.out --comment="$USER"'
    assert "L44" not in codes(f"{line}\nsrun python train.py")


@pytest.mark.parametrize(
    ("image", "reported"),
    [
        ("nvcr.io/nvidia/pytorch:25.06-py3", True),
        ("nvcr.io#nvidia/pytorch:25.06-py3", False),
        ("/images/pytorch.sqsh", False),
        ("$IMAGE", False),
    ],
)
def test_an_image_needs_a_separator_after_its_registry(image: str, reported: bool) -> None:
    for line in (f"--container-image={image}", f"--container-image {image}"):
        assert ("L22" in codes(f"#SBATCH --nodes=2\nsrun {line} python train.py")) is reported
    assert ("L22" in codes(f"#SBATCH --container-image={image}\nsrun python x.py")) is reported
