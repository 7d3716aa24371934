"""Spreads of the 80 % intervals of services, and how many measurements lie inside.

python -m benchmarks.accuracy.serving.intervals [--data FOLDER]

Errors are those of rows whose source was left out of the fit of the delays of requests, and, in
lines of their own, of the unseen benchmarks (``benchmark_runs.py``) that are close to a steady
state. An engine declares the larger width, if ``FEWEST_SOURCES`` of unseen benchmarks measured it.
The rows of a group share their errors, so n rows of a group count as n to the power of
``GROUP_POWER``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from math import exp, log
from pathlib import Path

from benchmarks.accuracy.pages.page_tables import markdown
from benchmarks.accuracy.serving.benchmark_runs import steady_predictions
from benchmarks.accuracy.serving.calibration import (
    QUANTITIES,
    CalibratedRow,
    calibrated_rows,
    calibration_table,
)
from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving, read_serving
from benchmarks.accuracy.serving.waits import (
    GROUP_EXPONENT,
    predict_unseen_sources,
    wait_rows,
)
from parc.compiler.cost.serving.service_intervals import service_intervals

COVERAGE = 0.8
"""Share of measurements that an interval is meant to contain."""
GROUP_POWER = 1 - 2 * GROUP_EXPONENT
FEWEST_SOURCES = 5
"""Fewest sources of unseen benchmarks from which a width is measured."""
DRAWS = 12
"""Drawings of three rows per benchmark."""


SECTION = """\
### Calibration and intervals of services

Median errors in % before and after `parc calibrate` with three rows of a benchmark (the rows with
the same model, GPU, engine, weight format and source), measured on its other rows. Before the
calibration, no constant for the delay of requests is fitted to a row of the source.

{}

Plans print 80 % intervals for TTFT, TPOT and tokens/s. *factor* is the measured half width: the
interval reaches from estimate / factor to estimate x factor. *inside, other sources* is the share
of rows inside an interval whose width is measured on all other sources. *unseen* are the [unseen
benchmarks](#test-with-unseen-benchmarks) that are close to a steady state. The engine tables
contain the larger of their widths and of those that were measured on more rows than this page uses;
{:.0f} % of the values of the tables above are inside those intervals.

{}
"""

ErrorRow = tuple[float, str, tuple[str, ...]]
"""(logarithm of predicted / measured, source, group)."""


def unseen_errors(
    predictions: Sequence[ServingPrediction],
) -> dict[tuple[str, str], list[ErrorRow]]:
    """Return the errors of rows of unseen sources by (engine, quantity)."""
    ttft = predict_unseen_sources(wait_rows(predictions))
    found: dict[tuple[str, str], list[ErrorRow]] = {}
    for one in predictions:
        for name, error_of in QUANTITIES.items():
            error = error_of(one)
            ratio = (
                ttft.get(one.row.name) if name == "TTFT" else None if error is None else 1 + error
            )
            if ratio:
                key = one.row.setup.engine.name, name
                found.setdefault(key, []).append((log(ratio), one.row.source, one.row.group))
    return found


def benchmark_errors() -> dict[tuple[str, str], list[ErrorRow]]:
    """Return the errors of unseen benchmarks by (engine, quantity), if enough sources have any."""
    found: dict[tuple[str, str], list[ErrorRow]] = {}
    for one in steady_predictions():
        for name, error_of in QUANTITIES.items():
            error = error_of(one)
            if error is not None:
                key = one.row.setup.engine.name, name
                found.setdefault(key, []).append((log(1 + error), one.row.source, one.row.group))
    return {
        key: rows
        for key, rows in found.items()
        if len({source for _, source, _ in rows}) >= FEWEST_SOURCES
    }


def calibrated_errors(rows: Sequence[CalibratedRow]) -> dict[str, list[ErrorRow]]:
    """Return the errors after a calibration with three other rows, by quantity."""
    found: dict[str, list[ErrorRow]] = {}
    for one in rows:
        row = one.after.row
        for name, error_of in QUANTITIES.items():
            error = error_of(one.after)
            if error is not None:
                found.setdefault(name, []).append((log(1 + error), row.source, row.group))
    return found


def spread_of(rows: Sequence[ErrorRow]) -> float:
    """Return the percentile ``COVERAGE`` of the absolute errors."""
    counts = Counter(group for _, _, group in rows)
    members = sorted((abs(error), counts[group] ** (GROUP_POWER - 1)) for error, _, group in rows)
    limit, total = COVERAGE * sum(weight for _, weight in members), 0.0
    for error, weight in members:
        total += weight
        if total >= limit:
            return error
    return members[-1][0]


def coverage_without_source(rows: Sequence[ErrorRow]) -> float:
    """Return the share of rows inside an interval that is measured on all other sources."""
    inside = 0
    for source in {source for _, source, _ in rows}:
        others = [row for row in rows if row[1] != source]
        spread = spread_of(others) if others else 0.0
        inside += sum(abs(row[0]) <= spread for row in rows if row[1] == source)
    return inside / len(rows)


def interval_table(predictions: Sequence[ServingPrediction], rows: Sequence[CalibratedRow]) -> str:
    """Return Markdown with spreads as factors and the coverage, per engine and quantity."""
    lines = []
    for (engine, name), errors in sorted(unseen_errors(predictions).items()):
        lines.append(_line(engine, name, errors))
    for (engine, name), errors in sorted(benchmark_errors().items()):
        lines.append(_line(f"{engine}, unseen", name, errors))
    for name, errors in calibrated_errors(rows).items():
        lines.append(_line("any, calibrated", name, errors))
    head = ("engine", "quantity", "rows", "factor", "inside, other sources, %")
    return markdown(head, lines)


def _line(engine: str, name: str, errors: Sequence[ErrorRow]) -> tuple[str, ...]:
    spread, inside = spread_of(errors), coverage_without_source(errors)
    factor = f"{exp(spread):.2f} (log {spread:.2f})"
    return engine, name, str(len(errors)), factor, f"{100 * inside:.0f}"


def shipped_coverage(predictions: Sequence[ServingPrediction]) -> float:
    """Return the share of all measured values inside the intervals that plans print."""
    inside: list[bool] = []
    for one in predictions:
        row, measured = one.row, one.row.measured
        if row.kind == "step" or not one.found.fits:
            continue
        found = service_intervals(one.found, row.setup.engine.errors, False, False)
        gpus = row.layout.gpus
        pairs = (
            (measured.ttft_seconds, found.ttft_seconds),
            (measured.tpot_seconds, found.tpot_seconds),
            (measured.tokens_per_second_per_gpu * gpus, found.tokens_per_second),
        )
        inside += [low <= value <= high for value, (low, high) in pairs if value]
    return sum(inside) / len(inside)


def interval_section(data: Path | None = None) -> str:
    """Return the section as Markdown, for the project's rows or for a wide table in ``data``."""
    predictions = predict_serving(read_serving(data).rows)
    # Several drawings, because three rows of a benchmark differ from three others.
    rows = calibrated_rows(predictions, DRAWS)
    return SECTION.format(
        calibration_table(rows),
        shipped_coverage(predictions) * 100,
        interval_table(predictions, rows),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the section; return exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.serving.intervals")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read FOLDER/serving.csv")
    print(interval_section(parser.parse_args(argv).data), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
