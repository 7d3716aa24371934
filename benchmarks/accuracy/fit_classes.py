"""Refit of all hardware classes on the open rows, and the files that hold the result.

A class has its own value of a parameter only if its row in ``catalog/generations`` or ``stacks``
lists it. The values that all classes share are the defaults of ``Efficiency``, which are the means
of the priors. Locked sources are never read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import exp
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.hardware_classes import STACKS, class_row
from benchmarks.accuracy.intervals import measured_spreads
from benchmarks.accuracy.joint_fit import (
    JointFit,
    Key,
    cases_by_class,
    fit_jointly,
    key_of,
    left_out_errors,
    predict_left_out,
)
from benchmarks.accuracy.pages.page_tables import markdown
from benchmarks.accuracy.predict import PRIORS, predict
from benchmarks.accuracy.score import score
from benchmarks.accuracy.sources import is_fitted, source_of

COMPILER = Path(__file__).resolve().parents[2] / "compiler"
CATALOG = COMPILER / "catalog" / "generations"
INTERVALS = COMPILER / "cost" / "step" / "step_interval.py"


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Open rows of a hardware class, and the error of the fit."""

    runs: int
    models: int
    sources: int
    gpus: dict[str, int]
    """Number of sources by catalog name of the GPU."""
    error: float
    """Mean error of these rows, 0.05 for 5 %."""


def open_rows(cases: Sequence[Case]) -> list[Case]:
    """Return the only cases that a fit may use: the scored ones of open sources."""
    return [case for case in cases if is_fitted(case)]


def fit_open_rows(cases: Sequence[Case]) -> JointFit:
    """Return the joint fit of all classes to the open rows."""
    return fit_jointly(open_rows(cases))


def class_rows(fit: JointFit) -> dict[str, ClassRows]:
    """Return the number of rows and their error, per class."""
    found = {}
    for name, rows in sorted(cases_by_class(line.case for line in fit.lines).items()):
        pairs = zip(predict(rows, fit.parameters(name)), rows, strict=True)
        error = score([seconds / case.seconds for seconds, case in pairs]).mape
        models = len({case.problem.model.name for case in rows})
        sources = {
            (source_of(one.run.source), one.problem.cluster.gpu.catalog_name) for one in rows
        }
        gpus = Counter(sorted(gpu for _, gpu in sources))
        count = len({source for source, _ in sources})
        found[name] = ClassRows(len(rows), models, count, dict(gpus), error)
    return found


def removal_costs(fit: JointFit) -> dict[Key, float]:
    """Return the cost of removing each value that a class has of its own.

    The cost is the increase of the mean error of the rows that use the value if their classes
    inherit it instead (0.01: one percentage point). Each row is predicted by a fit without the
    row's fold.
    """
    before = left_out_errors(fit)
    costs = {}
    for key in sorted(fit.structure):
        rows = [
            line.case
            for line in fit.lines
            if key_of(line.case.generation, key[1], fit.structure) == key
        ]
        after = left_out_errors(fit.without(key))
        errors = [score([exp(column[case.run.id]) for case in rows]) for column in (before, after)]
        costs[key] = errors[1].mape - errors[0].mape
    return costs


def parameter_table(fit: JointFit) -> str:
    """Return the table of own values: shared, shipped and fitted value, and cost of removal."""
    costs = removal_costs(fit)
    rows = []
    for key in sorted(fit.structure):
        name, parameter = key
        values = (PRIORS[parameter].center, getattr(class_row(name), parameter), exp(fit.logs[key]))
        spread = f"{100 * fit.spreads[key]:.0f}"
        rows.append(
            (name, parameter, *(f"{one:.3g}" for one in values), spread, f"{100 * costs[key]:+.2f}")
        )
    heads = ("class", "parameter", "shared", "shipped", "fitted", "spread, %", "cost of removal")
    return markdown(heads, rows, words=2)


def count_table(fit: JointFit) -> str:
    """Return the table of the number of own values, of every class that has any."""
    own = Counter(name for name, _ in fit.structure)
    names = sorted(own)
    rows = [(name, str(len(PRIORS)), str(own[name])) for name in names]
    total = ("**all**", str(len(PRIORS) * len(names)), str(own.total()))
    return markdown(("class", "parameters", "own values"), [*rows, total])


def fit_lines(fit: JointFit) -> str:
    """Return one line per class with its error, and one per parameter with its values."""
    lines = [
        f"{name}: {found.runs} open rows, mean error {100 * found.error:.1f} %"
        for name, found in class_rows(fit).items()
    ]
    for name, parameter in sorted(fit.structure):
        value, before = exp(fit.logs[name, parameter]), getattr(class_row(name), parameter)
        spread = f"{100 * fit.spreads[name, parameter]:.0f} %"
        lines.append(f"  {f'{name} {parameter}':44} {before:10.4g} -> {value:10.4g}  {spread}")
    return "\n".join(lines)


def write_all(fit: JointFit, unfitted: Sequence[Case]) -> list[Path]:
    """Write fitted values and spreads into the package, and return the files.

    ``unfitted`` are open cases that the fit has not seen.
    """
    return [*write_fit(fit), *_write_spreads(fit, unfitted)]


def write_fit(fit: JointFit, folders: Sequence[Path] = (CATALOG, STACKS)) -> list[Path]:
    """Write the fitted values into the files of ``folders`` and return the files.

    Comments, order and layout of the files stay as they are.
    """
    files, rows = [], class_rows(fit)
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        yaml = _yaml()
        document = yaml.load(path.read_text(encoding="utf-8"))
        for stack, row in document["efficiency"].items():
            _update_row(row, f"{path.stem}/{stack}", fit, rows)
        with path.open("w", encoding="utf-8") as file:
            yaml.dump(document, file)
        files.append(path)
    return files


def _update_row(
    row: dict[str, Any], name: str, fit: JointFit, rows: Mapping[str, ClassRows]
) -> None:
    if name in rows:
        row["fitted_runs"] = rows[name].runs
        row["fitted_models"] = rows[name].models
        row["fitted_sources"] = rows[name].sources
        row["fitted_gpus"] = _scalar(
            f"{{{', '.join(f'{gpu}: {count}' for gpu, count in rows[name].gpus.items())}}}"
        )
        row["mean_error_percent"] = _scalar(f"{100 * rows[name].error:.1f}")
    for owner, parameter in fit.structure:
        if owner == name:
            row[parameter] = _scalar(decimal_text(exp(fit.logs[owner, parameter])))


def _write_spreads(fit: JointFit, unfitted: Sequence[Case]) -> list[Path]:
    """Write the half widths of the intervals of step times, and return the file."""
    ratios = dict(predict_left_out(fit))
    for name, rows in cases_by_class(unfitted).items():
        for case, seconds in zip(rows, predict(rows, fit.parameters(name)), strict=True):
            ratios[case.run.id] = seconds / case.seconds
    cases = [*(line.case for line in fit.lines), *unfitted]
    text = INTERVALS.read_text(encoding="utf-8")
    for name, value in measured_spreads(cases, ratios).items():
        text, count = re.subn(rf"(?m)^({name} = )\S+$", rf"\g<1>{value:.2g}", text)
        if count != 1:
            raise ValueError(f"{name}: {count} values in {INTERVALS.name}")
    INTERVALS.write_text(text, encoding="utf-8")
    return [INTERVALS]


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
