"""Times to the first token by load, and a fit of what a request waits for before its prompt.

python -m benchmarks.accuracy.serving_waits [--data FOLDER]

The constants that are fitted (WAITS, by engine) are those of ``compiler/cost/serving/waits.py``;
everything else of a prediction stands. A row is also predicted by a fit that saw no row of its
source, so that no figure rests on the habits of one benchmark. What no row says: how requests
arrive. Where a concurrency is stated, a closed loop that starts full is taken for it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from benchmarks.accuracy.score import score
from benchmarks.accuracy.serving_priced import Priced, price, read_serving
from parc.compiler.cost.fitting.fit import Fitted, Prior, fit
from parc.compiler.cost.serving.constants import ENGINES, Engine
from parc.compiler.cost.serving.waits import Queue, closed_queue, open_queue, waited_seconds

WAITS = {
    "wait_share": Prior(0.05, 1.0, 1e-3, 1.0),
    "poll_steps": Prior(5.0, 1.0, 0.1, 100.0),
    "front_seconds": Prior(30e-3, 1.0, 1e-3, 1.0),
    "admission_seconds": Prior(1e-3, 1.0, 1e-5, 0.1),
}
"""Beliefs before any row: the share of ten rounds; the rest within a factor of 3 or so."""
CHUNK = 8192
"""Tokens of a step at most, in all three engines."""
BUSY = 0.6
"""Load of open arrivals up to which the fit trusts the row: past it the queue is all."""
CROWD = 0.3
"""Rows of a group share their errors: n of them count as n to the power of 1 - 2 x this."""
OUTLIER = 3.0
"""A row that is off by this factor under the first fit says nothing to the second (cold starts)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row with the part of its prediction that stands."""

    priced: Priced
    rest_seconds: float
    """Predicted time to the first token without what is waited for."""

    def seconds(self, engine: Engine) -> float:
        """With what is waited for under other constants."""
        return self.rest_seconds + _waited(self.priced, engine)


def load_of(one: Priced) -> str:
    """What a row's requests meet, in words that sort."""
    traffic, layout = one.row.traffic, one.row.layout
    if traffic.request_rate is not None:
        return "open arrivals"
    if traffic.concurrency is None:
        return "offline"
    engine = traffic.concurrency / layout.replicas
    if traffic.concurrency > one.found.max_concurrency:
        return "closed, more than the cache holds"
    if engine <= 1:
        return "closed, 1 alone"
    tokens = engine / layout.dp * traffic.input_tokens
    if tokens <= CHUNK:
        return "closed, 2 prompts of all in a step"
    return f"closed, {'3 in 2 to 8 steps' if tokens <= 8 * CHUNK else '4 in more steps'}"


def waiting(rows: Sequence[Priced]) -> list[Waiting]:
    """The rows that the fit can use."""
    kept = [one for one in rows if one.ttft is not None and load_of(one) not in UNFIT]
    found = [Waiting(one, one.found.ttft_seconds - _waited(one, _engine(one))) for one in kept]
    return [one for one in found if one.rest_seconds > 0 and _load(one.priced) < BUSY]


UNFIT = ("offline", "closed, more than the cache holds")


def _engine(one: Priced) -> Engine:
    return ENGINES[one.row.setup.engine]


def _load(one: Priced) -> float:
    layout, rate = one.row.layout, one.row.traffic.request_rate or 0.0
    return rate / (layout.dp * layout.replicas) * one.found.prefill_seconds


def _queue(one: Priced, engine: Engine) -> Queue:
    row = one.row
    ranks = row.layout.dp * row.layout.replicas
    if row.traffic.request_rate is not None:
        return open_queue(row.traffic.request_rate / ranks, one.found.prefill_seconds)
    concurrency = row.traffic.concurrency or 1.0
    busy = min(ranks, concurrency)
    return closed_queue(engine, busy / row.layout.replicas, concurrency / busy)


def _waited(one: Priced, engine: Engine) -> float:
    step = one.found.tpot_seconds * one.row.setup.accepted_tokens
    return waited_seconds(engine, _queue(one, engine), one.found.prefill_seconds, step)


def fitted(rows: Sequence[Waiting]) -> Fitted:
    """The constants of one engine from ``rows``; twice, the second time without odd rows."""
    first = _fit(rows)
    ratios = [seconds / _measured(row) for seconds, row in _pairs(rows, first.parameters)]
    kept = [row for ratio, row in zip(ratios, rows, strict=True) if abs(log(ratio)) < log(OUTLIER)]
    return _fit(kept) if kept else first


def _fit(rows: Sequence[Waiting]) -> Fitted:
    def predict(parameters: Mapping[str, float]) -> list[float]:
        return [seconds for seconds, _ in _pairs(rows, parameters)]

    groups = Counter(map(_group, rows))
    weights = [groups[_group(row)] ** -CROWD for row in rows]
    start = {name: prior.centre for name, prior in WAITS.items()}
    return fit(predict, [_measured(row) for row in rows], start, WAITS, weights=weights)


def _pairs(rows: Sequence[Waiting], parameters: Mapping[str, float]) -> list[tuple[float, Waiting]]:
    return [(row.seconds(replace(_engine(row.priced), **parameters)), row) for row in rows]


def _measured(row: Waiting) -> float:
    return row.priced.row.measured.ttft_seconds


def _group(row: Waiting) -> tuple[str, ...]:
    return row.priced.row.group


def unseen(rows: Sequence[Waiting]) -> dict[str, float]:
    """Predicted over measured by row, each by a fit that saw no row of its source."""
    found: dict[str, float] = {}
    for engine in sorted({row.priced.row.setup.engine for row in rows}):
        own = [row for row in rows if row.priced.row.setup.engine == engine]
        for source in sorted({row.priced.row.source for row in own}):
            rest = [row for row in own if row.priced.row.source != source]
            out = [row for row in own if row.priced.row.source == source]
            known = fitted(rest).parameters if rest else {n: p.centre for n, p in WAITS.items()}
            pairs = _pairs(out, known)
            found |= {row.priced.row.name: value / _measured(row) for value, row in pairs}
    return found


def load_table(priced: Sequence[Priced]) -> list[str]:
    """Markdown: errors of the time to the first token by load, shipped and of an unseen source."""
    rows = [one for one in priced if one.ttft is not None]
    ratios = unseen(waiting(rows))
    lines = ["| load | rows | median | mean | bias | source unseen | bias |"]
    lines.append("| --- " * 7 + "|")
    for load in sorted({load_of(one) for one in rows}):
        lines.append(_line(load, [one for one in rows if load_of(one) == load], ratios))
    return [*lines, _line("**all**", rows, ratios)]


def _line(name: str, rows: Sequence[Priced], ratios: Mapping[str, float]) -> str:
    shipped = score([1 + one.ttft for one in rows if one.ttft is not None])
    found = score([ratios[one.row.name] for one in rows if one.row.name in ratios])
    figures = [shipped.median, shipped.mape, shipped.bias]
    cells = [f"{100 * figure:.1f}" for figure in figures]
    cells += [f"{100 * found.median:.1f}", f"{100 * found.bias:.1f}"] if found.count else ["", ""]
    return f"| {name} | {len(rows)} | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the fit of every engine and the table; exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.serving_waits")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="serving.csv in FOLDER")
    priced = price(read_serving(parser.parse_args(argv).data).rows)
    rows = waiting(priced)
    for name in ENGINES:
        found = fitted([row for row in rows if row.priced.row.setup.engine == name])
        values = ", ".join(
            f"{one} {value:.3g} (log +-{found.spreads[one]:.2f})"
            for one, value in found.parameters.items()
        )
        print(f"{name}: {values}")
    print("\n".join(load_table(priced)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
