"""Job arrays: runs that need several jobs (L33), and jobs that run at the same time (L39)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compiled import Spec, changed, findings_of

BASE: Spec = {
    "parc": 1,
    "name": "array",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 4},
    "job": {"sequence_length": 8192, "global_batch": 64, "steps": 150_000},
    "layout": {"tp": 1, "pp": 1, "cp": 2},
    "launch": {"slurm": {"time_limit": "1-00:00:00"}},
}
"""A run of four days."""
SAVES = {"job.checkpoint_dir": "/ckpt"}


@pytest.mark.parametrize(
    ("job", "array", "fixes"),
    [
        ({}, None, [""]),
        ({}, "1-9%1", [""]),
        (SAVES, None, ['launch.slurm.array: "1-4%1"']),
        (SAVES, "1-3%1", ['launch.slurm.array: "1-4%1"']),
        (SAVES, "1,3-8:3%1", ['launch.slurm.array: "1-4%1"']),
        (SAVES, "1-4%1", []),
        (SAVES, "1,3-12:3%1", []),
    ],
)
def test_a_long_run_needs_an_array_with_enough_jobs(
    job: dict[str, Any], array: str | None, fixes: list[str]
) -> None:
    spec = changed(BASE, job)
    spec = spec if array is None else changed(spec, {"launch.slurm.array": array})
    found = findings_of(spec, "PARC-L33")
    assert [one.fix for one in found] == fixes
    # Without checkpoints, each job starts again, so that no number of them is enough.
    assert all(("it needs 4 jobs" in one.message) is (job == SAVES) for one in found)


@pytest.mark.parametrize(
    ("job", "array", "fixes"),
    [
        ({}, "1-4", []),
        (SAVES, "1-4%1", []),
        (SAVES, "7", []),
        (SAVES, "7%2", []),
        (SAVES, "1-4", ['launch.slurm.array: "1-4%1"']),
        (SAVES, "0,5-9:2%2", ['launch.slurm.array: "0,5-9:2%1"']),
    ],
)
def test_jobs_with_one_checkpoint_folder_run_one_after_another(
    job: dict[str, Any], array: str, fixes: list[str]
) -> None:
    spec = changed(changed(BASE, job), {"launch.slurm.array": array})
    assert [one.fix for one in findings_of(spec, "PARC-L39")] == fixes
