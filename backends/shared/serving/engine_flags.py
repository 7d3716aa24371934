"""Flags of an engine that a plan determines, and findings about the same flags in ``launch.args``.

The flags are those of the table ``flags.yaml`` in the package of the engine's backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from parc.backends.shared.extra_arguments import (
    ExtraArgument,
    explain_unestimated_flag,
    find_value_fault,
)
from parc.backends.shared.field_table import (
    FieldRow,
    flag_table,
    public_functions,
    value_at_path,
)
from parc.backends.shared.serving.serve_script import Argument
from parc.compiler.diagnostics import Finding
from parc.compiler.ir import ServingPlan

HOSTS = "hosts"
"""Group of flags that differ between hosts; ``processes.py`` of the engine computes them."""


def rows_with_values(
    plan: ServingPlan, package: str, computed: ModuleType
) -> Iterator[tuple[FieldRow, Any]]:
    """Yield (row, value) for each setting that all processes share, in the order of flags.yaml.

    Settings that the planned version lacks or whose value is None are left out. ``computed``
    contains the functions that the table of ``package`` names.
    """
    functions = public_functions(computed)
    version = plan.problem.version(plan.problem.framework)
    for row in flag_table(package).rows:
        if row.group == HOSTS or not row.exists_in(version):
            continue
        value = row.constant
        if row.derived:
            value = functions[row.derived](plan)
        elif value is None:
            # The roots of other paths, such as service, are parts of the problem.
            root = plan if hasattr(plan, row.fields[0].partition(".")[0]) else plan.problem
            value = value_at_path(root, row.fields[0])
        if value is not None:
            yield row, value


def shared_flags(plan: ServingPlan, package: str, computed: ModuleType) -> tuple[Argument, ...]:
    """Return the flags that have the same value in all processes of the plan.

    A flag whose value is False is left out; True means a flag without a value.
    """
    return tuple(
        Argument(row.setting, _argument_value(value), row.group)
        for row, value in rows_with_values(plan, package, computed)
        # 0 and "" are values.
        if value is not False
    )


def _argument_value(value: object) -> str | tuple[str, ...] | None:
    if value is True:
        return None
    return tuple(map(str, value)) if isinstance(value, tuple) else str(value)


def find_value_problem(
    extra: ExtraArgument, means: str, row: dict[str, Any], package: str
) -> tuple[str, Finding] | None:
    """Return (diagnostic code, finding) for invalid values (F03), or a flag not estimated (V43).

    ``means`` is the long, positive name of the flag, and ``row`` its row in known_flags.json. A
    field of a JSON option, such as ``--eplb-config.window_size``, has values of its own.
    """
    fault = None if "." in extra.flag else find_value_fault(extra, row)
    if fault is not None:
        return "F03", fault
    ignored = explain_unestimated_flag(extra.flag, means, package)
    return None if ignored is None else ("V43", ignored)


def explain_planned_flag(flag: str, means: str, planned: Sequence[Argument], field: str) -> Finding:
    """Return the finding that the plan already determines ``flag`` (F02).

    Args:
        flag: the flag in ``launch.args``.
        means: its long, positive name.
        planned: the flags of the plan.
        field: the spec field that determines the flag; empty if there is no single field.
    """
    words = next((" ".join(one.words) for one in planned if one.flag == means), "")
    return Finding(
        f"the plan already determines {flag}",
        label=f"the plan sets {words}" if words else f"the plan sets {means} per host, or omits it",
        help=f"set {field or 'the corresponding field of the spec'} instead",
        fix=f"remove {flag} from launch.args",
    )
