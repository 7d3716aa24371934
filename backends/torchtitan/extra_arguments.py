"""Checks of ``launch.args``: options of torchtitan that override the emitted module."""

from __future__ import annotations

from typing import Any

from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    bounds_outside_parser,
    parse_extra_arguments,
    report_extra_arguments,
)
from parc.backends.shared.field_table import field_table
from parc.backends.value_range import find_range_fault
from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.ir import Plan

PACKAGE = __package__ or ""
TARGETS = ("torchtitan",)
OF_MODEL = ("model.", "rope.")
"""Sections of fields.yaml that are not sections of torchtitan's command line."""


def find_bound_fault(option: str, value: Any) -> Finding | None:
    """Return a finding if ``value`` is outside the range of ``option``, else None.

    ``option`` is a name such as ``training.steps``. Values that are not numbers are not checked.
    """
    row = bounds_outside_parser(PACKAGE).get(f"--{option}", {})
    return find_range_fault(option, value, row, "{name} {value}") if row else None


def check_launch_args(plan: Plan, sink: Sink) -> None:
    """Report options that the plan sets (F02), and numbers outside their range (F03)."""
    rows = field_table(PACKAGE).rows
    names = {row.setting: row.fields for row in rows if not row.setting.startswith(OF_MODEL)}
    planned = {name.removeprefix("trainer."): fields for name, fields in names.items()}

    def check(extra: ExtraArgument) -> tuple[str, Finding] | None:
        name = _option_name(extra.flag)
        if name in planned:
            return "F02", _explain_planned_option(extra.flag, planned[name])
        fault = find_bound_fault(name, extra.values[0]) if extra.values else None
        return None if fault is None else ("F03", fault)

    extras, stray = parse_extra_arguments(plan.problem.launch.args)
    report_extra_arguments(extras, stray, check, sink, TARGETS)


def _option_name(flag: str) -> str:
    """Return the name of an option: ``--training.no-gc-debug`` becomes ``training.gc_debug``.

    tyro, torchtitan's parser, accepts dashes and underscores, and ``no-`` for a boolean key.
    """
    section, dot, key = flag.removeprefix("--").replace("-", "_").rpartition(".")
    return f"{section}{dot}{key.removeprefix('no_')}"


def _explain_planned_option(flag: str, fields: tuple[str, ...]) -> Finding:
    known = " or ".join(dict.fromkeys(fields))
    return Finding(
        f"the plan already determines {flag[:60]}",
        label="torchtitan would run another job than the plan describes",
        help=f"it is derived from {known}" if known else "all plans have this value",
        fix=f"remove {flag[:60]} from launch.args",
        targets=TARGETS,
    )
