"""Random edits of emitted scripts, with defaults of Megatron's own parser in the oracle."""

from __future__ import annotations

import json
import os

import pytest

from parc.backends.megatron.verify_arguments import ARGUMENTS
from tests.compiled import example_files
from tests.conformance.megatron.cases import parsed_flags
from tests.verify.edits import (
    NAMED,
    Behavior,
    false_alarms,
    measure_edits,
    shell_behavior,
    shell_neutral,
)
from tests.verify.megatron_parser import DUMP, megatron_behavior

pytestmark = pytest.mark.conformance
TRIED = int(os.environ.get("PARC_EDITS", "500"))
"""Edits per file that change behavior."""
FILES: tuple[tuple[str, str, Behavior], ...] = (
    ("llama-3-70b", ARGUMENTS, megatron_behavior),
    ("deepseek-v3", ARGUMENTS, megatron_behavior),
    ("nemotron-h-56b", ARGUMENTS, megatron_behavior),
    ("llama-3-70b", "torchrun/launch.sh", shell_behavior),
    ("llama-3-70b", "slurm/job.sbatch", shell_behavior),
    ("gpt2-small", "slurm/job.sbatch", shell_behavior),
    ("llama-3-70b", "slurm/order_hosts.sh", shell_behavior),
    ("mixtral-8x7b-deepspeed", "deepspeed/launch.sh", shell_behavior),
)
"""(example, file, oracle)."""


def test_the_dump_of_the_parser_equals_the_installed_one() -> None:
    real = parsed_flags()
    for flag, row in json.loads(DUMP.read_text("utf-8")).items():
        found = real[flag]
        takes = 0 if "action" in row else row.get("nargs", 1)
        assert found["takes"] == takes, flag
        if takes:
            assert found["default"] == row.get("default"), flag
            assert found["type"] == row.get("type", found["type"]), flag
        else:
            assert found["default"] == str(row["action"] == "store_false"), flag


@pytest.mark.parametrize(("name", "file", "behavior"), FILES)
def test_edits_that_change_behavior_are_named(name: str, file: str, behavior: Behavior) -> None:
    score = measure_edits(example_files(name), file, behavior, TRIED, seed=11)
    print(f"{name} {file}: {score.changed} edits, {score.named:.1%} named, {score.neutral} neutral")
    assert score.named >= NAMED, score.missed
    assert score.alarms == []


@pytest.mark.parametrize(("name", "file", "behavior"), FILES)
def test_neutral_edits_are_not_named(name: str, file: str, behavior: Behavior) -> None:
    files = example_files(name)
    assert false_alarms(files, file, shell_neutral(files[file], 11), TRIED) == []
