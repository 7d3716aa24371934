"""Small models on one node: a sweep that no fit sees, where launches and latencies rule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.accuracy.cases import make_cases
from benchmarks.accuracy.predict import predict
from benchmarks.accuracy.regret import mean_and_worst, sweeps
from benchmarks.accuracy.score import score
from benchmarks.accuracy.wide_table import read_wide
from parc.compiler.cost.fit import Fitted

FILE = "train_sweep_singlenode.csv"


def small_section(data: Path | None, fits: Mapping[str, Fitted]) -> str:
    """Markdown; empty where ``data`` has no such sweep."""
    path = data / FILE if data is not None and data.is_dir() else None
    if path is None or not path.is_file():
        return ""
    cases = [case for case in make_cases(tuple(read_wide(path).runs)).cases if case.scored]
    lines = [
        "## Small models on one node",
        "",
        "Rows that no fit has seen; fitted: with the parameters fitted on the rows above.",
        "Calculon 39 %, llm-analysis 57 %, FLOPs over a constant 53 % on this source's 1,440 rows.",
        "",
        "| class | rows | shipped | fitted | bias |",
        "|---|---:|---:|---:|---:|",
    ]
    for generation in sorted({case.generation for case in cases}):
        chosen = [case for case in cases if case.generation == generation]
        shipped = score(_ratios(predict(chosen), [case.seconds for case in chosen]))
        parameters = fits[generation].parameters if generation in fits else None
        fitted = score(_ratios(predict(chosen, parameters), [case.seconds for case in chosen]))
        numbers = (shipped.mape, fitted.mape, fitted.bias)
        cells = (generation, str(len(chosen)), *(f"{100 * value:.1f}" for value in numbers))
        lines.append(f"| {' | '.join(cells)} |")
    found = sweeps(cases)
    mean, worst = mean_and_worst(found)
    lines += [
        "",
        f"Regret over {len(found)} sweeps: mean {100 * mean:.1f} %, largest {100 * worst:.1f} %.",
    ]
    return "\n".join(lines)


def _ratios(predicted: list[float], measured: list[float]) -> list[float]:
    return [a / b for a, b in zip(predicted, measured, strict=True)]
