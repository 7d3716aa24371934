"""Times to the first token by load, and the fit of the wait before a request's prompt runs.

python -m benchmarks.accuracy.serving.waits [--data FOLDER] [--light]

The fitted constants (WAIT_PRIORS, per engine) are those of
``compiler/cost/serving/request_waits.py``; the other parts of a prediction stay fixed. The fit also
uses the means of the table of percentiles (``percentiles.py``). Each row is
also predicted by a fit without any row of its source, so that no figure depends on the
particularities of one benchmark. Rows do not state how requests arrive. For rows that state a
concurrency the fit assumes a closed loop that starts full.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log
from pathlib import Path

from benchmarks.accuracy.score import score
from benchmarks.accuracy.serving.benchmark_runs import steady_predictions
from benchmarks.accuracy.serving.percentiles import LARGEST_RATES, read_percentiles
from benchmarks.accuracy.serving.predictions import ServingPrediction, predict_serving, read_serving
from parc.compiler.cost.fitting import FitResult, ParameterPrior, fit_parameters
from parc.compiler.cost.serving.request_waits import (
    RequestQueue,
    StepSeconds,
    closed_loop_queue,
    poisson_queue,
    seconds_until_prompt_runs,
)
from parc.compiler.ir.engine_constants import ArrivalConstants
from parc.compiler.ir.serving import ServingSetup

WAIT_PRIORS = {
    "poll_steps": ParameterPrior(1.0, 1.0, 0.01, 100.0),
    "front_seconds": ParameterPrior(30e-3, 1.0, 1e-3, 1.0),
    "prompt_expert_seconds": ParameterPrior(4e-6, 1.0, 1e-8, 1e-3),
}
"""Priors: the constants are known within a factor of about 3. The admission time is not among them:
it is that of a Python front end, and the same for all engines, because fits per engine differ by a
factor of 10 between tables (0.1 to 1.5 ms; 0.45 ms is their geometric mean)."""
CHUNK = 8192
"""Maximum number of tokens per step, in all three engines."""
MAX_LOAD = 0.6
"""Largest load of open arrivals that the fit uses; above it queueing dominates the time."""
GROUP_EXPONENT = 0.3
"""Exponent of the weight of a row, because rows of a source share their errors: n rows count as n
to the power of 1 - 2 x this."""
LOADS = (
    *("closed loop: a single request", "closed loop: all prompts in one step"),
    *("closed loop: 2 to 8 steps", "closed loop: more than 8 steps"),
    *("closed loop: more requests than the cache holds", "offline", "open arrivals"),
)
"""Loads, in the order of the page: closed loops from light to heavy, then the others."""
SINGLE, ONE_STEP, FEW_STEPS, MANY_STEPS, OVERLOADED, OFFLINE, OPEN = LOADS
LIGHT = 8.0
"""Largest number of concurrent requests of a benchmark with a light load."""
OUTLIER = 3.0
"""Error factor under the first fit from which a row is left out of the second (cold starts)."""


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Row whose prediction is a linear function of the fitted constants."""

    prediction: ServingPrediction
    rest_seconds: float
    """Predicted time to the first token if all fitted constants are 0."""
    slopes: Mapping[str, float]
    """Name of a fitted constant -> derivative of the time to the first token by it."""

    def seconds(self, values: Mapping[str, float]) -> float:
        """Return the time to the first token if the fitted constants have these values."""
        slopes = self.slopes
        return self.rest_seconds + sum(slopes[name] * value for name, value in values.items())


def _wait_row(one: ServingPrediction) -> WaitRow:
    shipped = one.row.setup.engine.arrivals
    none = replace(shipped, **dict.fromkeys(WAIT_PRIORS, 0.0))
    least = _wait_seconds(one, none)
    slopes = {
        name: _wait_seconds(one, replace(none, **{name: 1.0})) - least for name in WAIT_PRIORS
    }
    if not shipped.front_seconds:  # the requests go through another front end
        slopes["front_seconds"] = 0.0
    rest = one.found.ttft_seconds - _wait_seconds(one, shipped) + least
    return WaitRow(one, rest, slopes)


def describe_load(one: ServingPrediction) -> str:
    """Return the load of a row, an element of ``LOADS``."""
    traffic, layout = one.row.traffic, one.row.layout
    if traffic.request_rate is not None:
        return OPEN
    if traffic.concurrency is None:
        return OFFLINE
    engine = traffic.concurrency / layout.replicas
    if traffic.concurrency > one.found.max_concurrency:
        return OVERLOADED
    if engine <= 1:
        return SINGLE
    tokens = engine / layout.dp * traffic.input_tokens
    if tokens <= CHUNK:
        return ONE_STEP
    return MANY_STEPS if tokens > 8 * CHUNK else FEW_STEPS


def wait_rows(rows: Sequence[ServingPrediction]) -> list[WaitRow]:
    """Return the rows that the fit can use: those of ``rows`` and of the table of percentiles."""
    kept = [
        one
        for one in (*rows, *percentile_predictions())
        if one.ttft is not None and describe_load(one) not in UNFITTED_LOADS
    ]
    found = map(_wait_row, kept)
    return [one for one in found if one.rest_seconds > 0 and _load(one.prediction) < MAX_LOAD]


@cache
def percentile_predictions() -> tuple[ServingPrediction, ...]:
    """Return the predicted means of the table of percentiles, except those of full engines."""
    rows = [
        replace(one.row, source=one.row.source.split(" run ")[0])
        for one in read_percentiles()
        if not one.row.source.startswith(LARGEST_RATES)
    ]
    return tuple(one for one in predict_serving(rows) if _has_free_slots(one))


def _has_free_slots(one: ServingPrediction) -> bool:
    present = one.row.traffic.concurrency or one.found.running * one.row.layout.replicas
    return one.found.fits and present < FULLEST * one.found.max_concurrency


FULLEST = 0.9
"""Largest fraction of the slots that the requests of a row of the table of percentiles may fill;
above it, requests wait for slots."""
UNFITTED_LOADS = (OFFLINE, OVERLOADED)
"""Loads under which the wait depends on more than the fitted constants."""


def _load(one: ServingPrediction) -> float:
    layout, rate = one.row.layout, one.row.traffic.request_rate or 0.0
    return rate / (layout.dp * layout.replicas) * one.found.prefill_seconds


def _setup(one: ServingPrediction, arrivals: ArrivalConstants) -> ServingSetup:
    return replace(one.row.setup, engine=replace(one.row.setup.engine, arrivals=arrivals))


def _queue(one: ServingPrediction, setup: ServingSetup) -> RequestQueue:
    row = one.row
    ranks = row.layout.dp * row.layout.replicas
    if row.traffic.request_rate is not None:
        return poisson_queue(setup, row.traffic, row.traffic.request_rate / ranks)
    concurrency = row.traffic.concurrency or 1.0
    busy = min(ranks, concurrency)
    return closed_loop_queue(setup, row.traffic, busy / row.layout.replicas, concurrency / busy)


def _wait_seconds(one: ServingPrediction, arrivals: ArrivalConstants) -> float:
    found, setup = one.found, _setup(one, arrivals)
    step = found.tpot_seconds * setup.accepted_tokens
    seconds = StepSeconds(found.prefill_seconds, found.decode.total_seconds, step)
    return seconds_until_prompt_runs(setup, one.row.model, _queue(one, setup), seconds)


def fit_waits(rows: Sequence[WaitRow]) -> FitResult:
    """Fit the constants of one engine to ``rows``, a second time without outliers."""
    # Cold starts and compilation at the first request are unrelated to queueing.
    first = _fit(rows)
    ratios = [seconds / _measured(row) for seconds, row in _pairs(rows, first.parameters)]
    kept = [row for ratio, row in zip(ratios, rows, strict=True) if abs(log(ratio)) < log(OUTLIER)]
    return _fit(kept) if kept else first


def _fit(rows: Sequence[WaitRow]) -> FitResult:
    def predict(parameters: Mapping[str, float]) -> list[float]:
        return [seconds for seconds, _ in _pairs(rows, parameters)]

    groups = Counter(map(_group, rows))
    weights = [groups[_group(row)] ** -GROUP_EXPONENT for row in rows]
    start = {name: prior.center for name, prior in WAIT_PRIORS.items()}
    return fit_parameters(
        predict, [_measured(row) for row in rows], start, WAIT_PRIORS, weights=weights
    )


def _pairs(rows: Sequence[WaitRow], parameters: Mapping[str, float]) -> list[tuple[float, WaitRow]]:
    return [(row.seconds(parameters), row) for row in rows]


def _measured(row: WaitRow) -> float:
    return row.prediction.row.measured.ttft_seconds


def _group(row: WaitRow) -> str:
    # Clients, front ends and their options are those of a source.
    return row.prediction.row.source


def predict_unseen_sources(rows: Sequence[WaitRow]) -> dict[str, float]:
    """Return predicted over measured by row, each from a fit without any row of its source."""
    found: dict[str, float] = {}
    for engine in sorted({row.prediction.row.setup.engine.name for row in rows}):
        own = [row for row in rows if row.prediction.row.setup.engine.name == engine]
        for source in sorted({row.prediction.row.source for row in own}):
            rest = [row for row in own if row.prediction.row.source != source]
            out = [row for row in own if row.prediction.row.source == source]
            known = (
                fit_waits(rest).parameters
                if rest
                else {n: p.center for n, p in WAIT_PRIORS.items()}
            )
            pairs = _pairs(out, known)
            found |= {row.prediction.row.name: value / _measured(row) for value, row in pairs}
    return found


def load_table(predictions: Sequence[ServingPrediction]) -> list[str]:
    """Return Markdown errors of TTFT by load, as shipped and for an unseen source."""
    own = [one for one in predictions if one.ttft is not None]
    extra = [one for one in percentile_predictions() if one.ttft is not None]
    rows = [*own, *extra]
    ratios = predict_unseen_sources(wait_rows(own))
    lines = ["| load | rows | median | mean | bias | median, unseen source | bias, unseen source |"]
    lines.append("| --- " * 7 + "|")
    for load in sorted({describe_load(one) for one in rows}, key=LOADS.index):
        lines.append(_line(load, [one for one in rows if describe_load(one) == load], ratios))
    lines.append(_line("**benchmarks with percentiles**", extra, ratios))
    return [*lines, _line("**all others**", own, ratios)]


def _line(name: str, rows: Sequence[ServingPrediction], ratios: Mapping[str, float]) -> str:
    shipped = score([1 + one.ttft for one in rows if one.ttft is not None])
    found = score([ratios[one.row.name] for one in rows if one.row.name in ratios])
    figures = [shipped.median, shipped.mape, shipped.bias]
    cells = [f"{100 * figure:.1f}" for figure in figures]
    cells += [f"{100 * found.median:.1f}", f"{100 * found.bias:.1f}"] if found.count else ["", ""]
    return f"| {name} | {len(rows)} | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the fit of every engine and the table; return exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.serving.waits")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="read FOLDER/serving.csv")
    parser.add_argument(
        "--light", action="store_true", help="also fit to unseen benchmarks with a light load"
    )
    arguments = parser.parse_args(argv)
    predictions = predict_serving(read_serving(arguments.data).rows)
    light = steady_predictions(LIGHT) if arguments.light else []
    rows = wait_rows([*predictions, *light])
    for name in sorted({row.prediction.row.setup.engine.name for row in rows}):
        found = fit_waits([row for row in rows if row.prediction.row.setup.engine.name == name])
        values = ", ".join(
            f"{one} {value:.3g} (log +-{found.spreads[one]:.2f})"
            for one, value in found.parameters.items()
        )
        print(f"{name}: {values}")
    print("\n".join(load_table(predictions)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
