"""The central refit uses open rows only and keeps the layout of the files that it writes."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, replace
from functools import cache
from math import exp, log
from pathlib import Path

import pytest

from benchmarks.accuracy.__main__ import load, main
from benchmarks.accuracy.fit_classes import (
    CATALOG,
    decimal_text,
    open_rows,
    removal_costs,
    write_fit,
)
from benchmarks.accuracy.hardware_classes import (
    STACKS,
    class_row,
    fitted_classes,
    own_parameters,
)
from benchmarks.accuracy.joint_fit import (
    JointFit,
    ancestors,
    class_values,
    left_out_errors,
    linearize,
    predict_left_out,
    shipped_structure,
    solve,
    start_values,
)
from benchmarks.accuracy.predict import PRIORS
from benchmarks.accuracy.sources import is_fitted, is_locked
from parc.compiler.ir import Efficiency

CLASS = "hopper/torch-native"
SMALL = {CLASS, "ampere/torch-native", "volta/unfused"}


@cache
def fit() -> JointFit:
    """Return the fit of three classes, linearized once at the shipped values."""
    rows = [case for case in open_rows(load(None).cases) if case.generation in SMALL]
    structure = shipped_structure(SMALL)
    logs = start_values(structure)
    start = JointFit(logs, {}, structure, linearize(rows, structure, logs))
    return replace(start, logs=solve(start.lines, start))


def test_no_locked_row_is_in_a_fit() -> None:
    cases = load(None).cases
    rows = open_rows(cases)
    assert not [case.run.id for case in rows if is_locked(case)]
    assert len(rows) == sum(is_fitted(case) for case in cases)


def test_a_class_without_an_own_value_has_that_of_its_parent_or_of_all_classes() -> None:
    assert ancestors("volta/unfused")[1:] == ("ampere/unfused",)
    assert ancestors("cdna3/torch-native")[1:] == (CLASS, "hopper/any-stack")
    structure = frozenset({("ampere/unfused", "gemm"), (CLASS, "tp")})
    logs = {("", name): 0.0 for name in PRIORS}
    logs |= {("ampere/unfused", "gemm"): log(2.0), (CLASS, "tp"): log(3.0)}
    assert class_values("volta/unfused", structure, logs)["gemm"] == pytest.approx(2.0)
    assert class_values(CLASS, structure, logs)["gemm"] == 1.0
    assert class_values(CLASS, structure, logs)["tp"] == pytest.approx(3.0)


def test_shipped_values_are_those_of_the_catalog() -> None:
    classes = fitted_classes()
    structure = shipped_structure(classes)
    logs = start_values(structure)
    for name in classes:
        row = asdict(class_row(name))
        for parameter, value in class_values(name, structure, logs).items():
            assert value == pytest.approx(row[parameter])


def test_fewer_values_are_fitted_than_one_per_class_and_parameter() -> None:
    own = sum(len(own_parameters(name)) for name in fitted_classes())
    assert 0 < own <= len(PRIORS) * len(fitted_classes()) / 4


def test_left_out_rows_are_predicted_alike_by_the_model_and_its_approximation() -> None:
    exact, approximate = predict_left_out(fit()), left_out_errors(fit())
    assert set(exact) == set(approximate)
    # Classes with fewer than three sources have other folds in the approximation.
    names = [line.case.run.id for line in fit().lines if line.case.generation == CLASS]
    assert len(names) > 30
    for name in names:
        assert exact[name] == pytest.approx(exp(approximate[name]), rel=0.1)


def test_a_removed_value_is_inherited_and_its_cost_is_the_change_of_the_error() -> None:
    smaller = fit().without((CLASS, "stream"))
    assert (CLASS, "stream") not in smaller.logs
    inherited = PRIORS["stream"].center
    assert smaller.parameters(CLASS)["stream"] == pytest.approx(inherited, rel=1e-3)
    assert removal_costs(fit())[CLASS, "stream"] > 0.001


def test_a_value_without_rows_of_its_own_costs_what_its_classes_lose() -> None:
    key = ("hopper/any-stack", "gemm")
    assert not [line for line in fit().lines if line.case.generation == key[0]]
    assert removal_costs(fit())[key] != 0.0


def test_shared_values_are_the_means_of_the_priors() -> None:
    defaults = asdict(Efficiency())
    for name, prior in PRIORS.items():
        assert exp(fit().logs["", name]) == pytest.approx(prior.center, rel=1e-3)
        assert defaults[name] == prior.center


def test_written_fits_change_only_values(tmp_path: Path) -> None:
    folders = (CATALOG, STACKS)
    copies = [shutil.copytree(folder, tmp_path / folder.name) for folder in folders]
    logs = {
        **fit().logs,
        (CLASS, "stream"): log(3.21),
        ("hopper/any-stack", "gemm"): log(0.00002718),
    }
    write_fit(replace(fit(), logs=logs), copies)
    text = (copies[0] / "hopper.yaml").read_text("utf-8")
    assert "    stream: 3.21\n" in text
    assert "    gemm: 0.0000272\n" in text
    for folder, copied in zip(folders, copies, strict=True):
        for path in folder.glob("*.yaml"):
            kept = [
                re.sub(r"(?m): [\d.]+$", ": ", one.read_text("utf-8"))
                for one in (path, copied / path.name)
            ]
            assert kept[0] == kept[1], path.name


@pytest.mark.parametrize(
    ("value", "text"), [(0.00003114, "0.0000311"), (1.0, "1.0"), (12.345, "12.3"), (0.5, "0.5")]
)
def test_values_are_written_without_an_exponent(value: float, text: str) -> None:
    assert decimal_text(value) == text


def test_a_part_of_the_rows_is_never_written_to_the_catalog() -> None:
    with pytest.raises(SystemExit):
        main(["--fit", "--write", "--group", "hopper"])
