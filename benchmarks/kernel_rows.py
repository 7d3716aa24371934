"""Kernel timings from CSV files, with the GPU and precision of each row.

If a file has the columns ``gpu`` and ``precision``, they are used. Otherwise the rows of one shape
follow the order of SERIES with some missing. They are aligned to the series that they resemble
under the current fit, keeping the order, in alternation with the fit (expectation maximization).
"""

from __future__ import annotations

import csv
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

BLACKWELL = ("b200-180gb", "b300-288gb", "gb200-186gb", "gb300-288gb")
HOPPER = ("h100-sxm-80gb", "h200-sxm-141gb")
AMPERE, ADA = ("a100-sxm-80gb",), ("l40s-48gb",)
NAMES = {
    "a100_sxm": "a100-sxm-80gb",
    "b200_sxm": "b200-180gb",
    "b300_sxm": "b300-288gb",
    "gb200": "gb200-186gb",
    "gb300": "gb300-288gb",
    "h100_sxm": "h100-sxm-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "l40s": "l40s-48gb",
}
SCANNED = (*HOPPER, *BLACKWELL, *ADA)
"""GPUs with timings of recurrences."""
ALL_GPUS = (*AMPERE, *BLACKWELL, *HOPPER, *ADA)
Series = tuple[str, str]
PRECISIONS = ("bf16", "fp8", "fp8_block")
ALL_PRECISIONS = (*PRECISIONS, "nvfp4")
SERIES: dict[str, tuple[Series, ...]] = {
    "gemm": (
        ("a100-sxm-80gb", "bf16"),
        *((gpu, precision) for gpu in BLACKWELL for precision in ALL_PRECISIONS),
        *((gpu, precision) for gpu in (*HOPPER, *ADA) for precision in PRECISIONS),
    ),
    "attention_prefill": tuple((gpu, "bf16") for gpu in ALL_GPUS),
    "scan": tuple((gpu, "bf16") for gpu in SCANNED),
}
COLUMNS = {
    "gemm": ("m", "n", "k"),
    "attention_prefill": ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"),
    "scan": ("batch_size", "seq_len", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"),
}
LEADING_SERIES = {"gemm": 23}
"""Number of series with a separate grid of shapes: they come first in every shape that has at least
so many rows, and are absent from all other shapes."""
SPREAD = 0.1
"""Error of a logarithm at which the distance of a row to a series is 1."""
OUTLIER = 8.0


@dataclass(frozen=True, slots=True)
class Timing:
    """A timing: shape in the order of COLUMNS, and seconds."""

    shape: tuple[int, ...]
    seconds: float


Predict = Callable[[Series, Timing], float]


def read_timings(folder: Path, kind: str) -> tuple[list[Timing], list[Series] | None]:
    """Return the rows of one type in file order, and their series if the file names them."""
    with (folder / f"{kind}.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    rows = [
        Timing(
            tuple(int(record[name]) for name in COLUMNS[kind]), float(record["latency_ms"]) / 1e3
        )
        for record in records
    ]
    if "gpu" not in records[0]:
        return rows, None
    gpus = (NAMES.get(record["gpu"], record["gpu"]) for record in records)
    return rows, [
        (gpu, record.get("precision", "bf16")) for gpu, record in zip(gpus, records, strict=True)
    ]


def rows_by_shape(rows: Sequence[Timing]) -> list[list[int]]:
    """Return the indices of the rows of each shape, in order."""
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        found[row.shape].append(index)
    return list(found.values())


def align_rows(costs: Sequence[Sequence[float]]) -> list[int]:
    """Return an increasing column index for each row that minimizes the sum of
    ``costs[row][column]``."""
    width = len(costs[0])
    best = [0.0] * (width + 1)
    taken: list[list[bool]] = []
    for cost in costs:
        row, marks = [math.inf] * (width + 1), [False] * (width + 1)
        for column in range(1, width + 1):
            here = best[column - 1] + cost[column - 1]
            marks[column] = here < row[column - 1]
            row[column] = min(here, row[column - 1])
        best = row
        taken.append(marks)
    found, column = [], width
    for marks in reversed(taken):
        while not marks[column]:
            column -= 1
        found.append(column - 1)
        column -= 1
    return found[::-1]


class Attribution:
    """Attribution of the rows of one type to series, improved round by round."""

    def __init__(self, kind: str, rows: Sequence[Timing]) -> None:
        self.series, self.rows = SERIES[kind], rows
        self.rows_by_shape = rows_by_shape(rows)
        self.column_of: list[int | None] = [None] * len(rows)
        self.bias = [0.0] * len(self.series)
        self.shared = LEADING_SERIES.get(kind, 0)
        for group in self.rows_by_shape:
            # labels are certain for complete shapes, and for the leading series of larger shapes
            known = len(group) if len(group) == len(self.series) else self.shared
            if len(group) >= max(known, 1):
                for column, index in enumerate(group[:known]):
                    self.column_of[index] = column
        self.is_certain = [column is not None for column in self.column_of]

    @property
    def uncertain(self) -> tuple[Series, ...]:
        """Series to which uncertain rows may belong."""
        return self.series[self.shared :]

    def realign(self, predict: Predict) -> int:
        """Realign all uncertain rows to ``predict`` and return the number of changes.

        All series have about the same size, so a bias pushes their counts towards the mean.
        """
        changed = 0
        columns = range(self.shared, len(self.series))
        for group in self.rows_by_shape:
            open_rows = [index for index in group if not self.is_certain[index]]
            if not open_rows:
                continue
            costs = [
                [self._cost(column, self.rows[index], predict) for column in columns]
                for index in open_rows
            ]
            for index, column in zip(open_rows, align_rows(costs), strict=True):
                changed += self.column_of[index] != columns[column]
                self.column_of[index] = columns[column]
        counts = Counter(self.column_of)
        mean = len(self.rows) / len(self.series)
        for column in columns:
            self.bias[column] += 0.3 * math.log(mean / max(counts[column], 1))
        return changed

    def _cost(self, column: int, row: Timing, predict: Predict) -> float:
        error = abs(math.log(predict(self.series[column], row) / row.seconds))
        return min(error / SPREAD, OUTLIER) - self.bias[column]

    def members(self, series: Iterable[Series]) -> list[tuple[Series, Timing]]:
        """Return the attributed rows of the given series."""
        wanted = {column for column, found in enumerate(self.series) if found in set(series)}
        return [
            (self.series[column], row)
            for column, row in zip(self.column_of, self.rows, strict=True)
            if column in wanted and column is not None
        ]


def sample(rows: list[tuple[Series, Timing]], size: int) -> list[tuple[Series, Timing]]:
    """Return at most ``size`` rows, always the same ones."""
    return rows if len(rows) <= size else random.Random(size).sample(rows, size)


def fold_of(row: Timing, count: int) -> int:
    """Return a pseudo-random fold below ``count`` that depends only on the shape."""
    return int(random.Random(repr(row.shape)).random() * count)
