"""Runs of small models on one host, whose times are mostly launches and latencies."""

from __future__ import annotations

from pathlib import Path

from benchmarks.accuracy.runs import Run
from benchmarks.accuracy.wide.table import read_training_table

FILE = "train_sweep_singlenode.csv"


def small_runs(folder: Path) -> tuple[Run, ...]:
    """Return the runs of the single-host sweep in ``folder``, or nothing if it has no such file."""
    path = folder / FILE
    return tuple(read_training_table(path).runs) if folder.is_dir() and path.is_file() else ()
