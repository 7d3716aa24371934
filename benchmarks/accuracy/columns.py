"""Predictions by fits that have not seen the source of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.joint_fit import JointFit, fit_jointly, predict_left_out
from benchmarks.accuracy.naive import naive_seconds
from benchmarks.accuracy.predict import predict
from benchmarks.accuracy.sources import is_fitted, source_of


@dataclass(frozen=True, slots=True)
class Columns:
    """Predicted over measured time of every case, by run id and kind of prediction."""

    shipped: dict[str, float]
    """Every case, with the shipped parameters, whose fit saw the fitted cases only."""
    no_source: dict[str, float]
    """Fitted cases, each with a fit without any case of its source."""
    naive: dict[str, float]
    """Naive formula with rates from the fitted cases of other sources."""

    @property
    def unseen(self) -> dict[str, float]:
        """Prediction of every case by a fit that has not seen its source."""
        return {**self.shipped, **self.no_source}


def columns(cases: Sequence[Case], fit: JointFit | None = None) -> Columns:
    """Return all columns for the scored cases; ``fit`` is the fit to the open ones, if known."""
    timed = [case for case in cases if case.scored]
    found = columns_without_fit(timed)
    rows = [case for case in timed if is_fitted(case)]
    if rows:
        found.no_source.update(predict_left_out(fit or fit_jointly(rows)))
    return found


def columns_without_fit(timed: Sequence[Case]) -> Columns:
    """Return the columns that need no fit of the cost model; the other column is empty."""
    found = Columns({}, {}, {})
    found.shipped.update(_ratios(timed, predict(timed)))
    for out, rest in left_out_sources(timed):
        found.naive.update(_ratios(out, naive_seconds(rest or timed, out)))
    return found


def left_out_sources(cases: Sequence[Case]) -> list[tuple[list[Case], list[Case]]]:
    """Return (cases of one source, fitted cases of other sources) for every source."""
    groups: dict[str, list[Case]] = {}
    rows: list[tuple[str, Case]] = []
    for case in cases:
        source = source_of(case.run.source)
        groups.setdefault(source, []).append(case)
        if is_fitted(case):
            rows.append((source, case))
    return [
        (out, [case for source, case in rows if source != own])
        for own, out in sorted(groups.items())
    ]


def _ratios(cases: Sequence[Case], seconds: Sequence[float]) -> dict[str, float]:
    return {case.run.id: time / case.seconds for case, time in zip(cases, seconds, strict=True)}
