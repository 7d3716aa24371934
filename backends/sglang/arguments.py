"""Flags of SGLang's server that all processes of a plan share, from the table flags.yaml."""

from __future__ import annotations

from parc.backends.sglang import computed_settings
from parc.backends.shared.field_table import flag_table
from parc.backends.shared.serving.engine_flags import shared_flags
from parc.backends.shared.serving.serve_script import Argument
from parc.compiler.ir import ServingPlan

PACKAGE = "parc.backends.sglang"
MODEL = "--model-path"


def planned_flags() -> frozenset[str]:
    """Return the names of the flags that a plan determines, omitted ones included."""
    return frozenset((MODEL, *(row.setting for row in flag_table(PACKAGE).rows)))


def shared_arguments(plan: ServingPlan) -> tuple[Argument, ...]:
    """Return the flags that have the same value in all processes of the plan."""
    return shared_flags(plan, PACKAGE, computed_settings)
