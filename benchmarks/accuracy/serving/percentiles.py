"""Simulated 99th percentiles of latencies against published ones.

python -m benchmarks.accuracy.serving.percentiles

``published/serving_percentiles.csv`` has two types of rows.

- Closed loops (InferenceMAX): the benchmark sends 10 requests per concurrent one to an idle
  service, so that all first requests arrive at once. Their prompts determine the 99th percentile of
  the time to the first token; the simulation starts with the same burst.
- Request rates (MLPerf Server): each submitter tuned the rate to the largest one at which its
  percentiles meet the limits. At that point a small change of the rate changes the percentiles by
  an order of magnitude. The comparison is therefore the largest rate at which the simulated
  percentiles are at most the measured ones. The spread of the lengths is not published; lognormal
  lengths with a coefficient of variation of 0.8 are assumed.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.accuracy.pages.page_tables import markdown
from benchmarks.accuracy.score import format_median_errors
from benchmarks.accuracy.serving.rows import ServingRow, parse_number, row_of
from parc.compiler.cost.serving.deployment import Deployment, build_deployment
from parc.compiler.cost.serving.simulation.simulate import Sampling, simulate
from parc.compiler.ir.serving import Lengths, ServiceStatistics, Traffic

PUBLISHED = Path(__file__).parent.parent / "published" / "serving_percentiles.csv"
REQUESTS_PER_SLOT = 10
"""Requests per concurrent request that InferenceMAX sends."""
RATE_REQUESTS = 600
"""Simulated requests per tried rate."""
RATE_ROUNDS = 6
"""Halvings of the interval from an eighth to four times the measured rate: 8 % are left."""

PERCENTILES_TEXT = """\
### 99th percentiles

The simulation against published percentiles: the median of |simulated / measured - 1| and, in
brackets, the median of simulated / measured - 1, in %. Closed loops start with a burst, as in the
benchmark; *in steady state* shows the error of a simulation that leaves the burst out. MLPerf
Server rows were measured at the largest rate within their limits, where percentiles change by an
order of magnitude if the rate changes by a few per cent; the fair comparison is *largest rate*: the
rate at which the simulated percentiles equal the measured ones, divided by the measured rate."""


@dataclass(frozen=True, slots=True)
class PercentileRow:
    """Measured means and 99th percentiles of a service; 0 if the source does not state them."""

    row: ServingRow
    ttft_p99_seconds: float
    tpot_p99_seconds: float

    @property
    def deployment(self) -> Deployment:
        """Deployment that the row measured."""
        row = self.row
        return build_deployment(row.model, row.cluster, row.setup, row.layout)


def read_percentiles(path: Path = PUBLISHED) -> Iterator[PercentileRow]:
    """Yield the rows of the table of percentiles."""
    with path.open(newline="", encoding="utf-8") as file:
        for record in csv.DictReader(file):
            found = _row_of(record)
            if found is not None:
                yield found


def _row_of(record: Mapping[str, str]) -> PercentileRow | None:
    absent = dict.fromkeys(
        ("pp", "apart", "share", "wait_steps", "output_tokens_per_second_per_gpu", "sweep", "kind"),
        "",
    )
    row = row_of({**absent, **record})
    if row is None:
        return None
    kind, _, size = record["spread"].partition(" ")
    value = parse_number(size)
    uniform = kind == "uniform"
    lengths = Lengths(range_ratio=value) if uniform else Lengths(value, value)
    return PercentileRow(
        replace(row, traffic=replace(row.traffic, lengths=lengths)),
        parse_number(record["ttft_p99_ms"]) / 1e3,
        parse_number(record["tpot_p99_ms"]) / 1e3,
    )


def closed_loop_ratio(one: PercentileRow, *, from_start: bool) -> float | None:
    """Return simulated over measured p99 of the time to the first token in a closed loop.

    With ``from_start``, the requests that arrive together at the start count, as in the benchmark.
    """
    traffic = one.row.traffic
    requests = REQUESTS_PER_SLOT * int(traffic.concurrency or 1)
    sampling = (
        Sampling(requests=requests, warm_up=0.0) if from_start else Sampling(requests=requests)
    )
    found = simulate(one.deployment, traffic, sampling)
    return found and found.ttft_seconds.p99 / one.ttft_p99_seconds


def largest_rate_ratio(one: PercentileRow) -> float:
    """Return the largest simulated rate with the measured p99 or less, over the measured rate.

    Both the time to the first token and the time per output token must stay within their p99.
    """
    measured = one.row.traffic.request_rate or 1.0
    low, high = 1 / 8, 4.0
    deployment = one.deployment
    for _ in range(RATE_ROUNDS):
        middle = (low * high) ** 0.5
        found = _simulate_at(deployment, one.row.traffic, middle * measured)
        if found and _is_within(found, one):
            low = middle
        else:
            high = middle
    return (low * high) ** 0.5


def _is_within(found: ServiceStatistics, one: PercentileRow) -> bool:
    return (
        found.ttft_seconds.p99 <= one.ttft_p99_seconds
        and found.tpot_seconds.p99 <= one.tpot_p99_seconds
    )


def _simulate_at(deployment: Deployment, traffic: Traffic, rate: float) -> ServiceStatistics | None:
    sampling = Sampling(requests=RATE_REQUESTS)
    return simulate(deployment, replace(traffic, request_rate=rate), sampling)


def stated_rate_ratios(one: PercentileRow) -> tuple[float, float] | None:
    """Return (TTFT, TPOT): simulated over measured p99 at the measured rate."""
    rate = one.row.traffic.request_rate or 1.0
    found = _simulate_at(one.deployment, one.row.traffic, rate)
    if found is None:
        return None
    ttft = found.ttft_seconds.p99 / one.ttft_p99_seconds
    return ttft, found.tpot_seconds.p99 / one.tpot_p99_seconds


def percentile_section(rows: Sequence[PercentileRow]) -> str:
    """Return the section as Markdown."""
    closed = [one for one in rows if one.row.traffic.concurrency is not None]
    rated = [one for one in rows if one.row.traffic.request_rate is not None]
    stated = [found for one in rated if (found := stated_rate_ratios(one))]
    columns: tuple[tuple[str, str, list[float | None]], ...] = (
        ("closed loop", "TTFT p99", [closed_loop_ratio(one, from_start=True) for one in closed]),
        (
            "closed loop",
            "TTFT p99, in steady state",
            [closed_loop_ratio(one, from_start=False) for one in closed],
        ),
        ("request rate", "largest rate", [largest_rate_ratio(one) for one in rated]),
        ("request rate", "TTFT p99 at the measured rate", [ttft for ttft, _ in stated]),
        ("request rate", "TPOT p99 at the measured rate", [tpot for _, tpot in stated]),
    )
    lines = []
    for load, name, ratios in columns:
        known = [ratio - 1 for ratio in ratios if ratio]
        lines.append((load, name, str(len(known)), format_median_errors(known, digits=0)))
    table = markdown(("load", "quantity", "rows", "error, %"), lines)
    return f"{PERCENTILES_TEXT}\n\n{table}\n"


def main() -> int:
    """Print the section; return exit status 0."""
    print(percentile_section(list(read_percentiles())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
