"""Result of a sweep: best point within limits, Pareto front and scaling efficiency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from math import inf
from typing import Any

from parc.compiler.ir.frozen import frozen
from parc.compiler.report.formatting import format_duration, format_without_exponent
from parc.compiler.tools.sweep.run_sweep import Point, SweepRow

OBJECTIVES: Mapping[str, str] = {
    "cost": "cost",
    "gpu-hours": "gpu_hours",
    "energy": "energy_kwh",
    "time": "wall_seconds",
    "gpus": "gpus",
}
"""Objective of ``parc sweep --best`` -> field of a row; the smallest value is the best."""
SIZE_PATHS = ("cluster.nodes", "cluster.racks", "layout.dp")
"""Spec paths that change only the number of GPUs. Points that differ in nothing else form a series
whose scaling efficiency is compared."""
Series = tuple[str, Point]
"""GPU type, and the values of a point that do not change the number of GPUs."""
FORMAT = 1
"""Version of the JSON document of a sweep."""


@frozen
class Limits:
    """Limits that the best point must not exceed; None for no limit."""

    seconds: float | None = None
    """Largest expected length of the run."""
    cost: float | None = None

    def allow(self, row: SweepRow) -> bool:
        """Return True if ``row`` has a plan that keeps all limits."""
        return not row.error and all(
            limit is None or (value is not None and value <= limit)
            for limit, value in ((self.seconds, row.wall_seconds), (self.cost, row.cost))
        )

    def describe(self) -> str:
        """Return the limits as text, such as `` within 30.0 days``; empty without limits."""
        time = "" if self.seconds is None else f" within {format_duration(self.seconds)}"
        return time + ("" if self.cost is None else f" for at most {self.cost:,.2f}")


NO_LIMITS = Limits()


@frozen(slots=False)
class Sweep:
    """Rows of a sweep, in the order of its points."""

    name: str
    """Name of the spec file."""
    rows: tuple[SweepRow, ...]

    @property
    def planned(self) -> tuple[SweepRow, ...]:
        """Rows of the points that have a plan."""
        return tuple(row for row in self.rows if not row.error)

    def best(self, objective: str, limits: Limits = NO_LIMITS) -> SweepRow | None:
        """Return the row with the smallest value of ``objective``, a key of ``OBJECTIVES``.

        Of equal rows, the one with the shorter run is returned. Returns None if no row keeps
        ``limits``, or if no such row has a value.
        """
        field = OBJECTIVES[objective]
        rows = [row for row in self.rows if limits.allow(row) and getattr(row, field) is not None]
        return min(
            rows,
            key=lambda row: (getattr(row, field), _or_infinite(row.wall_seconds)),
            default=None,
        )

    @cached_property
    def spend_field(self) -> str:
        """Field that is compared with time: ``cost`` if all plans have a price, or GPU-hours.

        A service has no run, so its ``cost_per_hour`` or ``gpus`` are compared.
        """
        fields = ("cost", "gpu_hours", "cost_per_hour", "gpus")
        rows = self.planned
        return next(
            (name for name in fields if all(getattr(row, name) is not None for row in rows)), "gpus"
        )

    @cached_property
    def pareto(self) -> frozenset[int]:
        """Indexes of the rows that no other row beats in both time and ``spend_field``.

        Time is the length of the run, or for a service the time per output token of the engine.
        """
        found, least = [], inf
        for (_, spend), index in sorted(
            (self.time_and_spend(row), index)
            for index, row in enumerate(self.rows)
            if not row.error
        ):
            if spend < least:
                found.append(index)
                least = spend
        return frozenset(found)

    def time_and_spend(self, row: SweepRow) -> tuple[float, float]:
        """Return the (time, cost) of a row with a plan, as the Pareto front compares them."""
        time = row.tpot_seconds if row.tpot_seconds is not None else row.wall_seconds
        return _or_infinite(time), _or_infinite(getattr(row, self.spend_field))

    @cached_property
    def scaling(self) -> tuple[float | None, ...]:
        """Scaling efficiency per row; None if the row has no plan.

        The efficiency is the throughput per GPU, relative to the smallest cluster of the series.
        """
        smallest: dict[Series, SweepRow] = {}
        for row in self.planned:
            first = smallest.setdefault(series(row), row)
            if (row.gpus or 0) < (first.gpus or 0):
                smallest[series(row)] = row
        return tuple(
            None if row.error else _per_gpu(row) / _per_gpu(smallest[series(row)])
            for row in self.rows
        )

    def to_json(self) -> dict[str, Any]:
        """Return the sweep as JSON types, one record per point."""
        return {
            "format": FORMAT,
            "name": self.name,
            "points": [
                {
                    **asdict(row),
                    "values": dict(row.values),
                    "pareto": index in self.pareto,
                    "scaling": self.scaling[index],
                }
                for index, row in enumerate(self.rows)
            ],
        }


def describe_point(row: SweepRow) -> str:
    """Return the values that a point sets as text, such as ``cluster.nodes=64``."""
    return " ".join(f"{path}={value}" for path, value in row.values)


def describe_best(sweep: Sweep, objective: str, limits: Limits) -> tuple[str, bool]:
    """Return (answer to the question for the best point, True if there is such a point)."""
    best = sweep.best(objective, limits)
    wanted = f"best {objective}{limits.describe()}"
    if best is not None:
        return f"{wanted}: {describe_point(best)}\n  {_describe_figures(best)}", True
    if not sweep.planned:
        return f"{wanted}: no point has a plan", False
    if objective == "cost" and all(row.cost is None for row in sweep.rows):
        missing = "set cluster.price_per_gpu_hour, or use --best gpu-hours"
        return f"{wanted}: unknown; {missing}", False
    fastest = sweep.best("time")
    if fastest is None:
        return f"{wanted}: no point describes a training run that ends", False
    figures = f"{describe_point(fastest)}\n  {_describe_figures(fastest)}"
    return f"{wanted}: no such point; the fastest is {figures}", False


def series(row: SweepRow) -> Series:
    """Return the key of a scaling series: the GPU type, and all values except sizes."""
    return row.gpu, tuple(pair for pair in row.values if not pair[0].startswith(SIZE_PATHS))


def _describe_figures(row: SweepRow) -> str:
    parts = [f"{row.gpus:,} x {row.gpu}"]
    if row.wall_seconds is not None:
        parts.append(format_duration(row.wall_seconds))
    if row.unmeasured:
        parts.append("not measured")
    if row.gpu_hours is not None:
        parts.append(f"{format_without_exponent(row.gpu_hours, 3)} GPU-hours")
    if row.cost is not None:
        parts.append(f"cost {row.cost:,.2f}")
    return ", ".join((*parts, row.layout))


def _per_gpu(row: SweepRow) -> float:
    return (row.tokens_per_second or 0.0) / (row.gpus or 1)


def _or_infinite(value: float | None) -> float:
    return inf if value is None else value
