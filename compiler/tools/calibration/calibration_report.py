"""Format the results of ``parc calibrate``: tables, JSON, and the calibration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.ir.serialize import as_json
from parc.compiler.report.formatting import (
    format_percent,
    format_quantity,
    format_seconds,
    round_floats_in_tree,
    round_to_six_digits,
    table,
)
from parc.compiler.report.text.layout_text import format_serving_layout
from parc.compiler.tools.calibration.calibrate import Calibration
from parc.compiler.tools.calibration.fit_runs import mean_error
from parc.compiler.tools.calibration.measured_runs import MeasuredRun

MAX_RUNS_SHOWN = 30
"""Maximum number of runs to print; if there are more, those with the largest errors."""
HEAD = "# Written by parc calibrate; name it under cluster.calibration of a spec.\n"


def calibration_text(calibration: Calibration) -> str:
    """Return the text that ``parc calibrate`` prints.

    It contains tables of the parameters, collectives and runs, and the mean errors of the runs.
    """
    count = calibration.count
    models = len({run.model.name for run in calibration.runs})
    parts = [
        f"{calibration.fit.hardware}: {count} run{'s' * (count > 1)} of {models} "
        f"model{'s' * (models > 1)}\n",
        *([_layout_lines(calibration)] if calibration.layouts else []),
        _parameter_table(calibration),
        *([_collective_table(calibration)] if calibration.links.measured else []),
        _run_table(calibration),
        _mean_error_line(calibration),
    ]
    return "\n".join(parts)


MAX_LAYOUTS_SHOWN = 5
"""Maximum number of layouts of services to print."""


def _layout_lines(calibration: Calibration) -> str:
    """Return the layouts that the measurements are compared with, so that users can check them."""
    shown = [format_serving_layout(one) for one in calibration.layouts[:MAX_LAYOUTS_SHOWN]]
    more = len(calibration.layouts) - len(shown)
    lines = [*shown, *([f"and {more} more"] if more else [])]
    return "compared with: " + "\n               ".join(lines) + "\n"


def _parameter_table(calibration: Calibration) -> str:
    measured = calibration.links.network
    rows = [
        (
            item.name,
            f"{item.shipped:.3g}",
            f"{item.fitted:.3g}",
            f"{item.spread * 100:.0f} %",
            # nccl-tests measure these parameters directly, whatever the runs show.
            "yes, --nccl" if item.name in measured else item.identified,
        )
        for item in calibration.fit.parameters
    ]
    return table(("parameter", "shipped", "fitted", "±", "identified"), rows)


def _collective_table(calibration: Calibration) -> str:
    rows = [
        (
            one.timings.test,
            f"{one.timings.ranks} on {one.timings.hosts}",
            str(len(one.before)),
            format_percent(mean_error(one.before, one.timings.seconds)),
            format_percent(mean_error(one.after, one.timings.seconds)),
        )
        for one in calibration.links.measured
    ]
    return table(("collective", "ranks on hosts", "sizes", "error shipped", "fitted"), rows)


def _run_table(calibration: Calibration) -> str:
    records = [_run_record(calibration, index) for index in range(len(calibration.runs))]
    if len(records) > MAX_RUNS_SHOWN:
        worst = sorted(records, key=lambda row: -abs(row["fitted"] / row["measured"] - 1))[
            :MAX_RUNS_SHOWN
        ]
        # The worst runs stay in the order of the user's table.
        records = [row for row in records if row in worst]
    rows = [
        (
            row["run"],
            _format_measured(row),
            *(_format_error(row, name) for name in _prediction_columns(calibration)),
        )
        for row in records
    ]
    return table(("run", "measured", *_prediction_columns(calibration).values()), rows)


def _format_measured(row: Mapping[str, Any]) -> str:
    rate = row["run"].endswith(" tokens/s")
    return format_quantity(row["measured"], "") if rate else format_seconds(row["measured"])


def _prediction_columns(calibration: Calibration) -> dict[str, str]:
    columns = {"shipped": "shipped", "fitted": "fitted"}
    return columns | ({"left_out": "left out"} if calibration.fit.left_out else {})


def _format_error(row: Mapping[str, Any], name: str) -> str:
    return f"{(row[name] / row['measured'] - 1) * 100:+.1f} %"


def _run_record(calibration: Calibration, index: int) -> dict[str, Any]:
    run, fit = calibration.runs[index], calibration.fit
    record = {
        "run": run.name,
        "line": run.span.line,
        "measured": run.seconds,
        "shipped": fit.before[index],
        "fitted": fit.after[index],
    }
    return record | ({"left_out": fit.left_out[index]} if fit.left_out else {})


def _mean_error_line(calibration: Calibration) -> str:
    words = {"shipped": "shipped", "fitted": "fitted", "left_out": "with the run left out"}
    text = ", ".join(
        f"{words[name]} {format_percent(value)}" for name, value in calibration.errors.items()
    )
    of = "the step" if isinstance(calibration.runs[0], MeasuredRun) else "the latencies"
    return f"mean error of {of}: {text}\n"


def calibration_json(calibration: Calibration) -> dict[str, Any]:
    """Return the document of ``parc calibrate --format json``.

    The key ``calibration`` has the content of the calibration file.
    """
    document = {
        "format": 1,
        "calibration": calibration.document(),
        "layouts": [as_json(one) for one in calibration.layouts],
        "parameters": [
            {
                "name": item.name,
                "shipped": item.shipped,
                "fitted": item.fitted,
                "spread": item.spread,
                "identified": item.identified,
            }
            for item in calibration.fit.parameters
        ],
        "runs": [_run_record(calibration, index) for index in range(len(calibration.runs))],
    }
    return dict(round_floats_in_tree(document))


def calibration_file(calibration: Calibration) -> str:
    """Return the text of the calibration file: a comment, then ``Calibration.document`` as YAML."""
    # Written by hand: ruamel is slow to import, and the document has only a few types.
    return HEAD + "".join(f"{line}\n" for line in _yaml_lines(calibration.document(), ""))


def _yaml_lines(tree: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{key}:", *_yaml_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{key}: {_yaml_scalar(value)}")
    return lines


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return str(round_to_six_digits(value)) if isinstance(value, float) else str(value)
