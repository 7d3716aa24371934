"""Errors before and after a calibration with three rows of the same benchmark.

python -m benchmarks.accuracy.serving.calibration [--data FOLDER] [--draws N]

A benchmark is a group of rows with the same model, GPU, engine, weight format and source. Three of
its rows are drawn at random and the factors of ``parc calibrate`` are fitted to them; the errors
are those of its other rows. Before the calibration, the delays of requests come from a fit without
any row of the source, so that neither column uses the rows that it predicts.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.accuracy.pages.page_tables import markdown
from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving, read_serving
from benchmarks.accuracy.serving.rows import ServingRow
from benchmarks.accuracy.serving.waits import fit_waits, wait_rows
from parc.compiler.cost.fitting import fit_parameters
from parc.compiler.cost.serving.calibrated_service import calibrated_service
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.cost.setup.calibrated_parameters import Values
from parc.compiler.ir.serving import ServingEstimate
from parc.compiler.tools.calibration.fit_services import observation_weight, service_priors

USED_ROWS = 3
"""Rows of a benchmark to which the factors are fitted."""
LEAST_ROWS = 6
"""Smallest number of rows of a benchmark that is evaluated."""
MOST_EVALUATED = 12
"""Largest number of other rows of a benchmark that are evaluated, so that none dominates."""
SEED = 7

Quantity = Callable[[ServingPrediction], float | None]
QUANTITIES: dict[str, Quantity] = {
    "TTFT": lambda one: one.ttft,
    "TPOT": lambda one: one.tpot,
    "tokens/s": lambda one: one.rate,
}
"""Name of a quantity -> relative error of its prediction."""


@dataclass(frozen=True, slots=True)
class CalibratedRow:
    """Row that was not used, with its predictions before and after the calibration."""

    before: ServingPrediction
    after: ServingPrediction


def calibrated_rows(
    predictions: Sequence[ServingPrediction], draws: int = 1, used: int = USED_ROWS
) -> list[CalibratedRow]:
    """Return the rows of all benchmarks that a calibration with ``used`` other rows predicts."""
    groups: dict[tuple[str, ...], list[ServingPrediction]] = defaultdict(list)
    for one in predictions:
        row = one.row
        measured = row.measured.ttft_seconds and row.measured.tpot_seconds
        if measured and row.kind == "served" and one.found.fits and not row.setup.prefill_apart:
            groups[row.group].append(one)
    random = Random(SEED)
    delays = _UnseenDelays(predictions)
    return [
        row
        for _, group in sorted(groups.items())
        if len(group) >= LEAST_ROWS + used - USED_ROWS
        for _ in range(draws)
        for row in _calibrate_group([delays.replaced(one.row) for one in group], random, used)
    ]


class _UnseenDelays:
    """Delays of requests that are fitted without the rows of one source."""

    def __init__(self, predictions: Sequence[ServingPrediction]) -> None:
        self.rows = wait_rows(predictions)
        self.found: dict[tuple[str, str], Mapping[str, float]] = {}

    def replaced(self, row: ServingRow) -> ServingRow:
        """Return the row with the delays of a fit without its source."""
        engine = row.setup.engine
        key = engine.name, row.source
        if key not in self.found:
            others = [
                one
                for one in self.rows
                if one.prediction.row.setup.engine.name == engine.name
                and one.prediction.row.source != row.source
            ]
            self.found[key] = fit_waits(others).parameters if others else {}
        arrivals = replace(engine.arrivals, **self.found[key])
        setup = replace(row.setup, engine=replace(engine, arrivals=arrivals))
        return replace(row, setup=setup)


def _calibrate_group(
    rows: Sequence[ServingRow], random: Random, used: int
) -> Iterator[CalibratedRow]:
    """Yield the rows that a fit to ``used`` others of the same benchmark predicts."""
    fitted_rows = random.sample(rows, used)
    names = {row.name for row in fitted_rows}
    others = [row for row in rows if row.name not in names]
    fitted = tuple(sorted(_fit_factors(fitted_rows).items()))
    for row in random.sample(others, min(len(others), MOST_EVALUATED)):
        yield CalibratedRow(_prediction(row, ()), _prediction(row, fitted))


def _fit_factors(rows: Sequence[ServingRow]) -> Mapping[str, float]:
    def predict(factors: Mapping[str, float]) -> list[float]:
        found = [_estimate(row, tuple(factors.items())) for row in rows]
        return [value for one in found for value in (one.ttft_seconds, one.tpot_seconds)]

    measured = [
        value for row in rows for value in (row.measured.ttft_seconds, row.measured.tpot_seconds)
    ]
    priors = service_priors()
    start = {name: prior.center for name, prior in priors.items()}
    weights = [observation_weight(quantity) for _ in rows for quantity in ("ttft", "tpot")]
    return fit_parameters(predict, measured, start, priors, weights=weights).parameters


def _estimate(row: ServingRow, factors: Values) -> ServingEstimate:
    cluster, engine = calibrated_service(row.cluster, row.setup.engine, factors)
    setup = replace(row.setup, engine=engine)
    return estimate_serving(row.model, cluster, setup, row.layout, row.traffic)


def _prediction(row: ServingRow, factors: Values) -> ServingPrediction:
    return ServingPrediction(row, _estimate(row, factors))


def calibration_table(rows: Sequence[CalibratedRow]) -> str:
    """Return Markdown with the median errors before and after the calibration, per engine."""
    engines = sorted({row.before.row.setup.engine.name for row in rows})
    lines = []
    for engine in (*engines, ""):
        own = [row for row in rows if engine in ("", row.before.row.setup.engine.name)]
        groups = len({row.before.row.group for row in own})
        cells = [
            f"{_error(own, name, 'before')} -> {_error(own, name, 'after')}" for name in QUANTITIES
        ]
        lines.append((engine or "**all**", str(groups), str(len(own)), *cells))
    return markdown(("engine", "benchmarks", "rows", *QUANTITIES), lines)


def _error(rows: Sequence[CalibratedRow], name: str, column: str) -> str:
    found = [QUANTITIES[name](getattr(row, column)) for row in rows]
    errors = [abs(error) for error in found if error is not None]
    return f"{100 * median(errors):.1f}" if errors else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.serving.calibration")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read FOLDER/serving.csv")
    parser.add_argument(
        "--draws", type=int, default=1, help="number of samples of three rows per benchmark"
    )
    arguments = parser.parse_args(argv)
    predictions = predict_serving(read_serving(arguments.data).rows)
    print(calibration_table(calibrated_rows(predictions, arguments.draws)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
