"""Section about small models on one host, whose times are mostly launches and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.refit import Columns
from benchmarks.accuracy.regret import mean_and_worst, sweeps
from benchmarks.accuracy.runs import Run
from benchmarks.accuracy.score import score
from benchmarks.accuracy.wide_table import read_training_table

FILE = "train_sweep_singlenode.csv"


def small_runs(folder: Path) -> tuple[Run, ...]:
    """Return the runs of the single-host sweep in ``folder``, or nothing if it has no such file."""
    path = folder / FILE
    return tuple(read_training_table(path).runs) if folder.is_dir() and path.is_file() else ()


def small_section(cases: Sequence[Case], found: Columns) -> str:
    """Return the section as Markdown, empty if there are no cases.

    These cases are used in the fits, but in no group of the other tables.
    """
    timed = [case for case in cases if case.scored]
    if not timed:
        return ""
    lines = [
        "## Small models on one host",
        "",
        "On the 1,440 rows of this source the mean error is 39 % for Calculon, 57 % for "
        "llm-analysis and 53 % for FLOPs divided by a constant.",
        "",
        "| class | rows | shipped | fitted | no model | bias, shipped |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for generation in sorted({case.generation for case in timed}):
        ids = [case.run.id for case in timed if case.generation == generation]
        columns = (found.shipped, found.fitted, found.no_model)
        scores = [score([column[run] for run in ids]) for column in columns]
        numbers = (*(one.mape for one in scores), scores[0].bias)
        cells = (generation, str(len(ids)), *(f"{100 * value:.1f}" for value in numbers))
        lines.append(f"| {' | '.join(cells)} |")
    ranked = sweeps(timed)
    mean, worst = mean_and_worst([sweep.regret for sweep in ranked])
    lines += [
        "",
        f"Regret over {len(ranked)} sweeps: mean {100 * mean:.1f} %, largest {100 * worst:.1f} %.",
    ]
    return "\n".join(lines)
