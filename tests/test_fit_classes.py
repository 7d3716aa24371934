"""The central refit uses open rows only and keeps the layout of the catalog files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.accuracy.__main__ import load, main
from benchmarks.accuracy.fit_classes import (
    CATALOG,
    ClassFit,
    decimal_text,
    fit_class,
    open_rows,
    write_fits,
)
from benchmarks.accuracy.hardware_classes import fitted_classes, own_parameters
from benchmarks.accuracy.sources import is_locked

FIT = ClassFit(
    runs=7,
    models=2,
    error=0.0512,
    before=0.06,
    parameters={"gemm": 1.2345, "hop_seconds": 0.00002718},
    spreads={},
    loose=(),
)


def test_no_locked_row_is_in_a_fit() -> None:
    cases = load(None).cases
    rows = [case for members in open_rows(cases).values() for case in members]
    assert not [case.run.id for case in rows if is_locked(case)]
    assert len(rows) == sum(case.scored and not is_locked(case) for case in cases)


def test_a_class_fits_only_the_parameters_of_its_file() -> None:
    members = open_rows(load(None).cases)["volta/unfused"]
    found = fit_class(members, "volta/unfused")
    assert set(found.parameters) == set(own_parameters("volta/unfused"))
    assert own_parameters("volta/jax") == ()
    assert found.error <= found.before + 1e-3


def test_written_fits_change_only_their_values(tmp_path: Path) -> None:
    for path in CATALOG.glob("*.yaml"):
        shutil.copy(path, tmp_path)
    assert [path.name for path in write_fits({"hopper/jax": FIT}, tmp_path)] == ["hopper.yaml"]
    before = (CATALOG / "hopper.yaml").read_text("utf-8").splitlines()
    after = (tmp_path / "hopper.yaml").read_text("utf-8").splitlines()
    assert len(before) == len(after)
    changed = {new.strip() for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {
        "fitted_runs: 7",
        "fitted_models: 2",
        "mean_error_percent: 5.1",
        "gemm: 1.23",
        "hop_seconds: 0.0000272",
    }


def test_every_class_with_fitted_parameters_has_open_rows() -> None:
    assert set(fitted_classes()) <= set(open_rows(load(None).cases))


@pytest.mark.parametrize(
    ("value", "text"), [(0.00003114, "0.0000311"), (1.0, "1.0"), (12.345, "12.3"), (0.5, "0.5")]
)
def test_values_are_written_without_an_exponent(value: float, text: str) -> None:
    assert decimal_text(value) == text


def test_a_part_of_the_rows_is_never_written_to_the_catalog() -> None:
    with pytest.raises(SystemExit):
        main(["--fit", "--write", "--group", "hopper"])
