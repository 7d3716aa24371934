"""Flags in launch.args that change memory or time are planned, or reported as not estimated."""

from __future__ import annotations

from fnmatch import fnmatchcase
from importlib.resources import files

import pytest

from parc.backends.sglang.arguments import planned_flags as sglang_flags
from parc.backends.shared.extra_arguments import (
    ESTIMATE_FREE,
    explain_unestimated_flag,
    rows_of_known_flags,
    spec_field_of_flag,
)
from parc.backends.vllm.arguments import planned_flags as vllm_flags
from parc.compiler.diagnostics.table_yaml import parse_table

PLANNED = {"parc.backends.sglang": sglang_flags, "parc.backends.vllm": vllm_flags}
CHANGING = {
    "parc.backends.sglang": (
        *("--cpu-offload-gb", "--disable-cuda-graph", "--enable-two-batch-overlap"),
        *("--enable-torch-compile", "--max-total-tokens", "--schedule-policy"),
        *("--attention-backend", "--enable-mixed-chunk", "--disable-overlap-schedule"),
    ),
    "parc.backends.vllm": (
        *("--enforce-eager", "--cpu-offload-gb", "--kv-cache-memory-bytes", "--enable-dbo"),
        *("--compilation-config", "--attention-backend", "--async-scheduling"),
        *("--num-gpu-blocks-override", "--max-num-scheduled-tokens"),
    ),
}
"""Flags that change memory or time, and that no field of the spec sets."""


def patterns(package: str) -> list[str]:
    return list(parse_table((files(package) / ESTIMATE_FREE).read_text("utf-8"))["flags"])


@pytest.mark.parametrize("package", PLANNED)
def test_every_pattern_of_harmless_flags_matches_a_flag_that_the_plan_leaves_free(
    package: str,
) -> None:
    free = {flag.lstrip("-") for flag in rows_of_known_flags(package)}
    free -= {flag.lstrip("-") for flag in PLANNED[package]()}
    assert [one for one in patterns(package) if not any(fnmatchcase(f, one) for f in free)] == []


@pytest.mark.parametrize("package", PLANNED)
def test_a_flag_that_changes_memory_or_time_is_reported(package: str) -> None:
    for flag in CHANGING[package]:
        assert flag in rows_of_known_flags(package), flag
        assert flag not in PLANNED[package](), flag
        assert explain_unestimated_flag(flag, flag, package) is not None, flag


def test_a_planned_flag_names_the_field_to_set() -> None:
    assert spec_field_of_flag("--max-num-seqs", "parc.backends.vllm") == "job.max_num_seqs"
    assert spec_field_of_flag("--kv-cache-dtype", "parc.backends.sglang") == "job.kv_precision"
    assert spec_field_of_flag("--enable-expert-parallel", "parc.backends.vllm") == "layout.ep"
