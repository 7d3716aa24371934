"""Fit the constants of kernel and collective times to a folder of timings.

    python benchmarks/fit_kernels.py FOLDER [--write] [--report]

FOLDER contains gemm.csv, attention_prefill.csv, scan.csv (the gated delta rule on sequences of at
least one chunk) and nccl.csv. --write updates
compiler/catalog/kernels for the measured GPUs, --report updates docs/kernel-fits.md.
Requires numpy and scipy, which no other part of the project does. A fit on a random half of the
shapes is evaluated on the other half (collectives, with 30 to 45 rows each, in five folds). The
constants that are written are fitted to all rows.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from kernel_forms import (
    Pool,
    Range,
    Values,
    attention_pools,
    collective,
    collective_ranges,
    gemm_pools,
    scan_pools,
)
from kernel_report import Validation, report_text
from kernel_rows import NAMES, Attribution, Predict, Series, Timing, fold_of, read_timings, sample
from kernel_yaml import entries
from scipy.optimize import least_squares

from parc.compiler.cost.kernels.collective_time import OPERATIONS, collective_seconds

ROOT = Path(__file__).resolve().parent.parent
LINKS = {"a100": 300.0, "h": 450.0, "b": 900.0, "gb": 900.0, "l40s": 31.5}
"""Start of a GPU's name -> data-sheet rate of its link, one direction, in GB/s."""
ROUNDS = 10
EVALUATIONS = 150
PART = 900
"""Number of rows per fit while rows are still being attributed."""
FOLDS = 5
BULK_BYTES = 64e6
"""Size from which messages weigh twice, because gradients and gathered weights have such sizes."""
Members = list[tuple[Series, Timing]]


@dataclass
class PoolFit:
    """Constants of one pool, and its errors on shapes that a separate fit did not use."""

    pool: Pool
    values: dict[str, float]
    validations: list[Validation] = field(default_factory=list)


def solve(
    ranges: Mapping[str, Range], errors: Callable[[Values], list[float]]
) -> tuple[float, dict[str, float]]:
    """Return cost and solution of least squares of logarithms, with a soft loss for outliers."""
    names = list(ranges)
    start, least, most = (np.array(column, float) for column in zip(*ranges.values(), strict=True))
    # least_squares requires a start strictly inside the bounds
    margin = 1e-3 * (most - least)
    start = np.clip(start, least + margin, most - margin)
    result = least_squares(
        lambda vector: np.array(errors(dict(zip(names, map(float, vector), strict=True)))),
        start,
        bounds=(least, most),
        loss="soft_l1",
        f_scale=0.1,
        x_scale=np.maximum(np.abs(start), 1e-12),
        max_nfev=EVALUATIONS,
    )
    values = {name: round_significant(value) for name, value in zip(names, result.x, strict=True)}
    return float(result.cost), values


def round_significant(value: float) -> float:
    """Round to four significant digits, because no timing is more precise."""
    return float(f"{value:.4g}")


def fit_pool(pool: Pool, members: Members) -> dict[str, float]:
    """Fit the constants of ``pool`` to rows of its series."""

    def errors(values: Values) -> list[float]:
        fits = {series: pool.build(series, values) for series in pool.series}
        return [math.log(pool.predict(fits[s], row) / row.seconds) for s, row in members]

    return solve(pool.ranges, errors)[1]


def attribute(kind: str, pools: Sequence[Pool], folder: Path) -> dict[Series, list[Timing]]:
    """Return the rows of one file by series, attributed iteratively if the file has no labels."""
    rows, named = read_timings(folder, kind)
    if named is not None:
        found: dict[Series, list[Timing]] = {}
        for series, row in zip(named, rows, strict=True):
            found.setdefault(series, []).append(row)
        return found
    state = Attribution(kind, rows)
    for turn in range(ROUNDS):
        changed = state.realign(_predictions(pools, state))
        print(f"{kind}: round {turn}, {changed} of {len(rows)} rows changed", file=sys.stderr)
        if changed * 1000 < len(rows):
            break
    return {series: [row for _, row in state.members([series])] for series in state.series}


def _predictions(pools: Sequence[Pool], state: Attribution) -> Predict:
    """Return a predictor of the seconds that a series needs for a row, fitted to the present
    attribution."""
    fits = {}
    for pool in (pool for pool in pools if set(pool.series) & set(state.uncertain)):
        values = fit_pool(pool, sample(state.members(pool.series), PART))
        fits |= {series: (pool, pool.build(series, values)) for series in pool.series}

    def predict(series: Series, row: Timing) -> float:
        pool, fit = fits[series]
        return pool.predict(fit, row)

    return predict


def fit_kind(kind: str, pools: Sequence[Pool], folder: Path) -> list[PoolFit]:
    """Evaluate every pool of one file on held-out shapes, then fit it to all of them."""
    rows = attribute(kind, pools, folder)
    found = []
    for pool in pools:
        members = [(series, row) for series in pool.series for row in rows[series]]
        half = fit_pool(pool, [pair for pair in members if fold_of(pair[1], 2)])
        fitted = PoolFit(pool, fit_pool(pool, members))
        for series in pool.series:
            fit = pool.build(series, half)
            unseen = [row for row in rows[series] if not fold_of(row, 2)]
            fitted.validations.append(
                Validation(kind, series, [(row, pool.predict(fit, row)) for row in unseen])
            )
        found.append(fitted)
        print(f"{kind}: {pool.series[0]}, {len(members)} rows", file=sys.stderr)
    return found


def fit_collectives(folder: Path) -> dict[tuple[str, str], tuple[dict[str, float], Validation]]:
    """Return (GPU, operation) -> constants and errors. A message has two bytes per element."""
    with (folder / "nccl.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    found = {}
    for gpu in NAMES:
        for operation in OPERATIONS:
            name = operation.replace("all_to_all", "alltoall")
            rows = [
                Timing(
                    (int(r["message_size"]) * 2, int(r["num_gpus"])), float(r["latency_ms"]) / 1e3
                )
                for r in records
                if (r["gpu"], r["op_name"]) == (gpu, name)
            ]
            ranges = collective_ranges(NAMES[gpu], operation)
            pairs = []
            for number in range(FOLDS):
                seen = [row for row in rows if fold_of(row, FOLDS) != number]
                fit = collective(operation, _fit_collective(operation, ranges, seen))
                pairs += [
                    (row, collective_seconds(fit, *row.shape))
                    for row in rows
                    if fold_of(row, FOLDS) == number
                ]
            validation = Validation("nccl", (NAMES[gpu], operation), pairs)
            found[NAMES[gpu], operation] = _fit_collective(operation, ranges, rows), validation
    return found


def _fit_collective(
    operation: Any, ranges: Mapping[str, Range], rows: list[Timing]
) -> dict[str, Any]:
    def errors(values: Values) -> list[float]:
        fit = collective(operation, values)
        return [
            (2.0 if row.shape[0] >= BULK_BYTES else 1.0)
            * math.log(collective_seconds(fit, *row.shape) / row.seconds)
            for row in rows
        ]

    # The best ramp is small for all-to-all and large for other operations, and least squares
    # finds only the nearest minimum: start at several sizes and keep the best fit.
    _, least, most = ranges["ramp_bytes"]
    tries = [{**ranges, "ramp_bytes": (start, least, most)} for start in (6e4, 5e5, 5e6)]
    return min((solve(each, errors) for each in tries), key=lambda found: found[0])[1]


def link_gb_per_s(gpu: str) -> float:
    """Return the rate of the longest matching prefix."""
    return LINKS[max((start for start in LINKS if gpu.startswith(start)), key=len)]


def main() -> None:
    """Fit, print the tables, and write the requested files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    fitted = fit_kind("gemm", gemm_pools(), options.folder)
    fitted += fit_kind("attention_prefill", attention_pools(), options.folder)
    fitted += fit_kind("scan", scan_pools(), options.folder)
    collectives = fit_collectives(options.folder)
    validations = [one for pool in fitted for one in pool.validations]
    text = report_text(validations + [one for _, one in collectives.values()])
    print(text)
    if options.report:
        (ROOT / "docs" / "kernel-fits.md").write_text(text, "utf-8")
    if options.write:
        links = {gpu: link_gb_per_s(gpu) for gpu in NAMES.values()}
        for gpu, entry in entries(fitted, collectives, links).items():
            path = ROOT / "compiler" / "catalog" / "kernels" / f"{gpu}.yaml"
            path.write_text(entry, "utf-8")


if __name__ == "__main__":
    main()
