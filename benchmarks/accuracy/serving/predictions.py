"""Predictions for published serving measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.accuracy.serving.rows import ServingRow, read_published
from benchmarks.accuracy.serving.wide_table import ServingTable, read_serving_table
from parc.compiler.cost.serving.deployment import build_deployment
from parc.compiler.cost.serving.step import StepBatch, engine_step_seconds
from parc.compiler.cost.serving.traffic import estimate_serving
from parc.compiler.ir.serving import ServingEstimate


@dataclass(frozen=True, slots=True)
class ServingPrediction:
    """Measured row with the estimate for it."""

    row: ServingRow
    found: ServingEstimate

    @property
    def tpot(self) -> float | None:
        """Relative error of the time per output token; None if it was not measured."""
        if self.row.kind == "step":
            return _error(self.found.decode.total_seconds, self.row.measured.tpot_seconds)
        return _error(self.found.tpot_seconds, self.row.measured.tpot_seconds)

    @property
    def ttft(self) -> float | None:
        """Relative error of the time to the first token."""
        return _error(self.found.ttft_seconds, self.row.measured.ttft_seconds)

    @property
    def rate(self) -> float | None:
        """Relative error of the output tokens per second and GPU."""
        measured = self.row.measured.tokens_per_second_per_gpu
        return _error(self.found.tokens_per_second_per_gpu, measured)


def _error(predicted: float, measured: float) -> float | None:
    if not measured or predicted == float("inf"):
        return None
    return predicted / measured - 1


def predict_serving(rows: Iterable[ServingRow]) -> list[ServingPrediction]:
    """Return the predictions for all rows under the shipped constants."""
    return [ServingPrediction(row, _estimate(row)) for row in rows]


def _estimate(row: ServingRow) -> ServingEstimate:
    """Return the estimate for a row.

    For a row that measured only a decode step, ``decode`` has the terms for exactly that many
    requests.
    """
    asked = (row.model, row.cluster, row.setup, row.layout)
    found = estimate_serving(*asked, row.traffic)
    if row.kind != "step":
        return found
    batch = StepBatch(row.traffic.concurrency or 1.0, row.traffic.input_tokens)
    return replace(found, decode=engine_step_seconds(build_deployment(*asked), batch))


def read_serving(data: Path | None) -> ServingTable:
    """Return the project's rows, or those of a wide table in ``data`` if there is one."""
    if data is None:
        return ServingTable(list(read_published()))
    try:
        return read_serving_table(data)
    except OSError:
        return ServingTable(list(read_published()))
