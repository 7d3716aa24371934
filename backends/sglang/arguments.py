"""Flags of SGLang's server that all processes of a plan share, from the table flags.yaml."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.sglang import computed_settings
from parc.backends.shared.field_table import flag_table, public_functions, value_at_path
from parc.backends.shared.serving.serve_script import Argument, argument_value
from parc.compiler.ir import ServingPlan

PACKAGE = "parc.backends.sglang"
HOSTS = "hosts"
"""Group of flags that differ between hosts; processes.py computes them."""
DERIVED = public_functions(computed_settings)
"""Functions that flags.yaml names."""
MODEL = "--model-path"


def planned_flags() -> frozenset[str]:
    """Return the names of the flags that a plan determines, omitted ones included."""
    return frozenset((MODEL, *(row.setting for row in flag_table(PACKAGE).rows)))


def shared_arguments(plan: ServingPlan) -> tuple[Argument, ...]:
    """Return the flags that have the same value in all processes of the plan."""
    return tuple(_iterate_arguments(plan))


def _iterate_arguments(plan: ServingPlan) -> Iterator[Argument]:
    """Yield the flags with the same value in all processes, in the order of flags.yaml."""
    version = plan.problem.version("sglang")
    for row in flag_table(PACKAGE).rows:
        if row.group == HOSTS or not row.exists_in(version):
            continue
        value = DERIVED[row.derived](plan) if row.derived else value_at_path(plan, row.fields[0])
        # 0 and "" are values: only None and False omit a flag.
        if value is not None and value is not False:
            yield Argument(row.setting, argument_value(value), row.group)
