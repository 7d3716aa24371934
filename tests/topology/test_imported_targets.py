"""Imported fragments name their framework in ``emit``, so that no compile starts another one."""

from __future__ import annotations

from typing import Any

import pytest

from parc.compiler.diagnostics.table_yaml import parse_table
from tests.topology.reading import read

LAUNCHERS = ["preflight", "rankmap", "slurm", "torchrun"]


def imported(kind: str, text: str) -> tuple[dict[str, Any], str]:
    """Return (fragment, its text with comments)."""
    found, sink = read(kind, text)
    assert not sink.failed()
    return dict(parse_table(found)), found


@pytest.mark.parametrize(
    ("kind", "frameworks"),
    [
        ("FSDP", ["accelerate"]),
        ("MULTI_GPU", ["accelerate"]),
        ("DEEPSPEED", ["accelerate", "deepspeed"]),
    ],
)
def test_a_config_of_accelerate_is_compiled_for_accelerate(
    kind: str, frameworks: list[str]
) -> None:
    config = f"distributed_type: {kind}\nnum_machines: 1\nnum_processes: 8\n"
    assert imported("accelerate-yaml", config)[0]["emit"] == [*frameworks, *LAUNCHERS]


def test_a_config_of_accelerate_for_an_unknown_framework_has_no_target() -> None:
    config = "distributed_type: MEGATRON_LM\nnum_machines: 1\nnum_processes: 8\n"
    spec, text = imported("accelerate-yaml", config)
    assert spec["emit"] == []
    assert "does not recognize the framework of distributed_type MEGATRON_LM" in text


def test_a_batch_script_with_an_unknown_program_has_no_target() -> None:
    script = "#SBATCH --nodes=2\nsrun torchrun --nproc_per_node=4 train.py --lr 1e-4\n"
    spec, text = imported("sbatch", script)
    assert (spec["launch"]["program"], spec["emit"]) == ("train.py", [])
    assert "# emit is empty, because PARC does not recognize the framework of train.py" in text


def test_directives_alone_leave_the_target_to_the_spec() -> None:
    assert "emit" not in imported("sbatch", "#SBATCH --nodes=2\n")[0]
