"""``python -m benchmarks.accuracy.pages.plots``: write figures and tables of the cost model.

The pages are docs/cost-model.md and those in docs/cost-model/. Errors are read from
docs/accuracy.md, which ``make accuracy`` writes first. Points are the open rows with predictions
under the shipped parameters. The accuracy line of README.md is written too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy.__main__ import load
from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.memory.rows import read_readings
from benchmarks.accuracy.pages.bar_plot import Bars, bars_svg
from benchmarks.accuracy.pages.comparison_plot import Point, ScatterChart, comparison_svg
from benchmarks.accuracy.pages.cost_page import (
    fill_blocks,
    fill_pages,
    measured_blocks,
    peer_table,
    step_time_lines,
    written_blocks,
)
from benchmarks.accuracy.pages.page import LOCKED, OPEN
from benchmarks.accuracy.pages.page_tables import table_under
from benchmarks.accuracy.predict import estimate_step
from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving
from benchmarks.accuracy.serving.rows import read_published
from benchmarks.accuracy.sources import is_locked

DOCS = Path(__file__).resolve().parents[3] / "docs"
GENERATIONS = ("volta", "ampere", "hopper", "blackwell", "cdna")
ENGINES = ("vllm", "sglang", "trtllm")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the figures and the generated blocks of the page; return exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.pages.plots")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="FOLDER")
    docs = parser.parse_args(argv).docs
    accuracy = (docs / "accuracy.md").read_text(encoding="utf-8")
    kernels = (docs / "kernel-fits.md").read_text(encoding="utf-8")
    cases = [case for case in load(None).cases if case.scored and not is_locked(case)]
    served = predict_serving(read_published())
    folder = docs / "cost-model"
    folder.mkdir(exist_ok=True)
    for name, text in figures(accuracy, cases, served).items():
        (folder / name).write_text(text, encoding="utf-8")
    blocks = {**written_blocks(kernels), **measured_blocks(cases, served)}
    fill_pages((docs / "cost-model.md", *sorted(folder.glob("*.md"))), blocks)
    readme = docs.parent / "README.md"
    tables = {"step-time": step_time_lines(accuracy), "peers": peer_table(accuracy)}
    text = fill_blocks(readme.read_text(encoding="utf-8"), tables)
    readme.write_text(text, encoding="utf-8")
    return 0


def figures(
    accuracy: str, cases: Sequence[Case], served: Sequence[ServingPrediction]
) -> dict[str, str]:
    """Return file name -> SVG."""
    return {
        "step-time.svg": comparison_svg(step_times(cases)),
        "error-by-group.svg": bars_svg(errors_by_group(accuracy)),
        "memory.svg": comparison_svg(memory_peaks()),
        "tpot.svg": comparison_svg(decode_latencies(served)),
    }


def step_times(cases: Sequence[Case]) -> ScatterChart:
    """Return the chart of seconds per training step, by GPU generation."""
    rows = [
        Point(
            measured=case.seconds,
            predicted=estimate_step(case).total_seconds,
            color=_family(case.problem.cluster.gpu.generation),
            shape=case.kind,
        )
        for case in cases
    ]
    return ScatterChart(
        f"Training step time, {len(rows)} rows of open sources, shipped parameters",
        "step time, seconds",
        tuple(rows),
        GENERATIONS,
        ("dense", "MoE"),
    )


def _family(generation: str) -> str:
    """Return the generation without its number: AMD's generations share a color."""
    return generation.rstrip("0123456789")


def memory_peaks() -> ScatterChart:
    """Return the chart of peak gigabytes on the fullest rank, by source."""
    rows = [
        Point(one.measured_bytes / 1e9, one.predicted_bytes / 1e9, one.group, "peak")
        for one in read_readings()
    ]
    return ScatterChart(
        f"Peak memory of one rank, {len(rows)} published readings",
        "peak, GB",
        tuple(rows),
        tuple(sorted({row.color for row in rows})),
        ("peak",),
    )


def decode_latencies(served: Sequence[ServingPrediction]) -> ScatterChart:
    """Return the chart of milliseconds per output token, by GPU generation and engine."""
    rows = [
        Point(
            measured=1e3 * one.row.measured.tpot_seconds,
            predicted=1e3 * one.row.measured.tpot_seconds * (1 + error),
            color=_family(one.row.cluster.gpu.generation),
            shape=one.row.setup.engine.name,
        )
        for one in served
        if (error := one.tpot) is not None
    ]
    return ScatterChart(
        f"Time per output token, {len(rows)} published rows",
        "TPOT, milliseconds",
        tuple(rows),
        GENERATIONS,
        ENGINES,
    )


def errors_by_group(accuracy: str) -> Bars:
    """Return the mean errors of groups: first of locked sources, then of open ones."""
    locked = table_under(accuracy, LOCKED).picked("group", "rows", "locked", "naive").rows
    rows = table_under(accuracy, OPEN).picked("group", "rows", "no source", "naive").rows
    names = [f"locked: {row[0]} ({row[1]})" for row in locked]
    names += [f"{row[0]} ({row[1]})" for row in rows]
    errors = [tuple(map(float, row[2:])) for row in (*locked, *rows)]
    return Bars(
        "Step-time error by group",
        "mean of |predicted / measured - 1|, %",
        ("sources that the fit has not seen", "naive: FLOPs over a constant of other sources"),
        tuple(zip(names, errors, strict=True)),
        (len(locked),),
    )


if __name__ == "__main__":
    raise SystemExit(main())
