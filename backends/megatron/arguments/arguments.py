"""Command-line arguments of Megatron for a valid layout, from the table ``flags.yaml``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parc.backends.megatron.arguments import (
    derived_launch,
    derived_layout,
    derived_model,
    derived_optimizer,
    derived_position,
    derived_sharding,
    derived_stages,
)
from parc.backends.megatron.capabilities import core_version
from parc.backends.shared.field_table import Derived, flag_table, public_functions
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.frozen import frozen

PACKAGE = "parc.backends.megatron"


@frozen
class Argument:
    """Command-line flag with its values, and the group of the flag in ``flags.yaml``."""

    flag: str
    values: tuple[str, ...]
    group: str


def _ignore_layout(function: Callable[[Problem], Any]) -> Callable[[Problem, Layout], Any]:
    # The table calls every function with a layout, but settings of the model depend on none.
    return lambda problem, layout: function(problem)


DERIVED: Derived = {
    **public_functions(
        derived_launch, derived_layout, derived_optimizer, derived_sharding, derived_stages
    ),
    **{
        name: _ignore_layout(function)
        for name, function in public_functions(derived_model, derived_position).items()
    },
}
"""Functions that flags.yaml refers to, by name."""


def planned_arguments(problem: Problem, layout: Layout) -> tuple[Argument, ...]:
    """Return the flags that PARC sets for ``layout``, without the user's extra arguments.

    Flags in ``launch.omit`` are left out.
    """
    table, omitted = flag_table(PACKAGE), problem.launch.omit
    values = table.rows_with_values(problem, layout, core_version(problem), DERIVED)
    return tuple(
        Argument(row.setting, _value_words(value), row.group)
        for row, value in values
        # The table has already dropped None; True stays, and becomes a flag without words.
        if value is not False and row.setting not in omitted
    )


def _value_words(value: Any) -> tuple[str, ...]:
    """Return the command-line words for the value of a flag.

    A float becomes the shortest text that parses to the same number.
    """
    if value is True:
        return ()
    if isinstance(value, tuple):
        return tuple(str(item) for item in value)
    return (repr(value) if isinstance(value, float) else str(value),)
