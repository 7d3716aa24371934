"""Refit of the hardware classes on the open rows, and the catalog files that hold the result.

A class fits only the parameters that its row in ``catalog/generations`` lists; the others are
inherited. Locked sources are never read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.hardware_classes import fitted_classes
from benchmarks.accuracy.predict import predict, priors, shipped
from benchmarks.accuracy.refit import refit
from benchmarks.accuracy.score import score
from benchmarks.accuracy.sources import is_locked

CATALOG = Path(__file__).resolve().parents[2] / "compiler" / "catalog" / "generations"


@dataclass(frozen=True, slots=True)
class ClassFit:
    """Fit of one hardware class on its open rows."""

    runs: int
    models: int
    error: float
    """Mean error of the fitted rows, 0.05 for 5 %."""
    before: float
    """The same with the shipped parameters."""
    parameters: Mapping[str, float]
    spreads: Mapping[str, float]
    loose: tuple[str, ...]
    """Names of the parameters that the rows do not determine."""


def fit_classes(cases: Sequence[Case]) -> dict[str, ClassFit]:
    """Return the fit of every class that has fitted parameters and open rows, by class name."""
    rows = open_rows(cases)
    return {name: fit_class(rows[name], name) for name in fitted_classes() if name in rows}


def open_rows(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Return the scored cases of open sources by hardware class, sorted by name."""
    rows: dict[str, list[Case]] = {}
    for case in cases:
        if case.scored and not is_locked(case):
            rows.setdefault(case.generation, []).append(case)
    return dict(sorted(rows.items()))


def fit_class(cases: Sequence[Case], name: str) -> ClassFit:
    """Return the fit of the class ``name`` to ``cases``."""
    now = shipped(name)
    found = refit(cases, name, now)

    def error(parameters: Mapping[str, float]) -> float:
        pairs = zip(predict(cases, parameters), cases, strict=True)
        return score([seconds / case.seconds for seconds, case in pairs]).mape

    return ClassFit(
        runs=len(cases),
        models=len({case.problem.model.name for case in cases}),
        error=error(found.parameters),
        before=error({}),
        parameters=found.parameters,
        spreads=found.spreads,
        loose=found.unidentified_parameters(priors(name)),
    )


def fit_lines(fits: Mapping[str, ClassFit]) -> str:
    """Return one line per parameter: shipped value, fitted value, spread of its logarithm."""
    lines = []
    for name, fit in fits.items():
        now = shipped(name)
        errors = f"{100 * fit.before:.1f} % -> {100 * fit.error:.1f} %"
        lines.append(f"{name}: {fit.runs} open rows, mean error {errors}")
        for key, value in fit.parameters.items():
            spread = f"{fit.spreads[key]:.2f}" + (" (prior)" if key in fit.loose else "")
            lines.append(f"  {key:24} {now[key]:10.4g} -> {value:10.4g}  {spread}")
    return "\n".join(lines)


def write_fits(fits: Mapping[str, ClassFit], folder: Path = CATALOG) -> list[Path]:
    """Write the fitted values into the files of ``folder`` and return the changed files.

    Comments, order and layout of the files stay as they are.
    """
    changed = []
    for path in sorted(folder.glob("*.yaml")):
        own = {name: fit for name, fit in fits.items() if name.partition("/")[0] == path.stem}
        if own:
            yaml = _yaml()
            document = yaml.load(path.read_text(encoding="utf-8"))
            for name, fit in own.items():
                _update_row(document["efficiency"][name.partition("/")[2]], fit)
            with path.open("w", encoding="utf-8") as file:
                yaml.dump(document, file)
            changed.append(path)
    return changed


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 100
    return yaml


def _update_row(row: dict[str, Any], fit: ClassFit) -> None:
    row["fitted_runs"] = fit.runs
    row["fitted_models"] = fit.models
    row["mean_error_percent"] = _scalar(f"{100 * fit.error:.1f}")
    for name, value in fit.parameters.items():
        row[name] = _scalar(decimal_text(value))


def decimal_text(value: float) -> str:
    """Format a number with three significant digits and without an exponent.

    >>> decimal_text(0.00003114), decimal_text(1.0), decimal_text(12.345)
    ('0.0000311', '1.0', '12.3')
    """
    text = format(Decimal(f"{value:.3g}"), "f")
    return text if "." in text else f"{text}.0"


def _scalar(text: str) -> Any:
    """Return a number that is written to YAML as ``text``."""
    return _yaml().load(text)
