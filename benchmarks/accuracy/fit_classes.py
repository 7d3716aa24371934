"""Refit of all hardware classes on the open rows, and the files that hold the result.

A class has its own value of a parameter only if its row in ``catalog/generations`` lists it. The
values that all classes share are the defaults of ``Efficiency``. Locked sources are never read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from math import exp
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.hardware_classes import class_row
from benchmarks.accuracy.joint_fit import (
    JointFit,
    Key,
    ancestors,
    by_class,
    fit_jointly,
    left_out_errors,
)
from benchmarks.accuracy.page_tables import markdown
from benchmarks.accuracy.predict import PRIORS, predict
from benchmarks.accuracy.score import score
from benchmarks.accuracy.sources import is_locked
from parc.compiler.ir import Efficiency

COMPILER = Path(__file__).resolve().parents[2] / "compiler"
CATALOG = COMPILER / "catalog" / "generations"
DEFAULTS = COMPILER / "ir" / "gpu_generation.py"
"""Source file of ``Efficiency``."""


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Open rows of a hardware class, and the error of the fit."""

    runs: int
    models: int
    error: float
    """Mean error of these rows, 0.05 for 5 %."""


def open_rows(cases: Sequence[Case]) -> list[Case]:
    """Return the scored cases of open sources, the only ones that a fit may use."""
    return [case for case in cases if case.scored and not is_locked(case)]


def fit_open_rows(cases: Sequence[Case]) -> JointFit:
    """Return the joint fit of all classes to the open rows."""
    return fit_jointly(open_rows(cases))


def class_rows(fit: JointFit) -> dict[str, ClassRows]:
    """Return number and error of the rows of every class."""
    found = {}
    for name, rows in sorted(by_class(line.case for line in fit.lines).items()):
        pairs = zip(predict(rows, fit.parameters(name)), rows, strict=True)
        error = score([seconds / case.seconds for seconds, case in pairs]).mape
        models = len({case.problem.model.name for case in rows})
        found[name] = ClassRows(len(rows), models, error)
    return found


def removal_costs(fit: JointFit) -> dict[Key, float]:
    """Return what it costs to remove each parameter.

    The cost is the increase of the mean error of left-out sources, over the rows that use the
    parameter (0.01: one percentage point). A class without its own value uses the inherited one; a
    shared value that is removed is fixed at its prior.
    """
    before = left_out_errors(fit)
    costs = {}
    for key in fit.logs:
        rows = [line.case for line in fit.lines if not key[0] or key[0] in _classes(line.case)]
        after = left_out_errors(fit.without(key))
        errors = [score([exp(column[case.run.id]) for case in rows]) for column in (before, after)]
        costs[key] = errors[1].mape - errors[0].mape
    return costs


def _classes(case: Case) -> tuple[str, ...]:
    return ancestors(case.generation)


def parameter_table(fit: JointFit) -> str:
    """Return the table of all parameters: values, uncertainty, and the cost of removing each."""
    costs = removal_costs(fit)
    now = asdict(Efficiency())
    rows = []
    for key in sorted(fit.logs):
        name, parameter = key
        shipped = getattr(class_row(name), parameter) if name else now[parameter]
        spread = f"{100 * fit.spreads[key]:.0f}"
        cells = (f"{shipped:.3g}", f"{exp(fit.logs[key]):.3g}", spread, f"{100 * costs[key]:+.2f}")
        rows.append((name or "*all classes*", parameter, *cells))
    heads = ("class", "parameter", "shipped", "fitted", "spread, %", "cost of removal, points")
    return markdown(heads, rows, words=2)


def fit_lines(fit: JointFit) -> str:
    """Return one line per class with its error, and one per parameter with its values."""
    lines = [
        f"{name}: {found.runs} open rows, mean error {100 * found.error:.1f} %"
        for name, found in class_rows(fit).items()
    ]
    now = asdict(Efficiency())
    for (name, parameter), value in sorted(fit.logs.items()):
        before = getattr(class_row(name), parameter) if name else now[parameter]
        spread = f"{100 * fit.spreads[name, parameter]:.0f} %"
        label = f"{name or 'all classes'} {parameter}"
        lines.append(f"  {label:44} {before:10.4g} -> {exp(value):10.4g}  {spread}")
    return "\n".join(lines)


def write_fit(fit: JointFit, folder: Path = CATALOG, defaults: Path = DEFAULTS) -> list[Path]:
    """Write the fitted values and return the files.

    Comments, order and layout of the files stay as they are.
    """
    files, rows = [defaults], class_rows(fit)
    text = defaults.read_text(encoding="utf-8")
    for (name, parameter), value in fit.logs.items():
        if not name:
            text = _with_default(text, parameter, exp(value))
    defaults.write_text(text, encoding="utf-8")
    for path in sorted(folder.glob("*.yaml")):
        yaml = _yaml()
        document = yaml.load(path.read_text(encoding="utf-8"))
        for stack, row in document["efficiency"].items():
            name = f"{path.stem}/{stack}"
            if name in rows:
                row["fitted_runs"] = rows[name].runs
                row["fitted_models"] = rows[name].models
                row["mean_error_percent"] = _scalar(f"{100 * rows[name].error:.1f}")
            for parameter in PRIORS:
                if (name, parameter) in fit.structure:
                    row[parameter] = _scalar(decimal_text(exp(fit.logs[name, parameter])))
        with path.open("w", encoding="utf-8") as file:
            yaml.dump(document, file)
        files.append(path)
    return files


def _with_default(source: str, parameter: str, value: float) -> str:
    """Return the source of ``Efficiency`` with another default of one parameter."""
    pattern = rf"(?m)^(    {parameter}: float = )\S+$"
    changed, count = re.subn(pattern, rf"\g<1>{decimal_text(value)}", source)
    if count != 1:
        raise ValueError(f"{parameter}: {count} defaults in {DEFAULTS.name}")
    return changed


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 100
    return yaml


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
