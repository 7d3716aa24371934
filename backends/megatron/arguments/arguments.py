"""The arguments of one layout, from the flag table. Valid or not: the rules judge, this speaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from parc.backends.megatron.arguments import (
    derived_layout,
    derived_model,
    derived_optimizer,
    derived_position,
    derived_stages,
)
from parc.backends.shared.field_table import Derived, flag_table, public_functions
from parc.compiler.ir import Layout, Problem

PACKAGE = "parc.backends.megatron"


@dataclass(frozen=True, slots=True)
class Argument:
    """One flag with its values."""

    flag: str
    values: tuple[str, ...]
    group: str


def _of_any_layout(function: Callable[[Problem], Any]) -> Callable[[Problem, Layout], Any]:
    return lambda problem, layout: function(problem)


DERIVED: Derived = {
    **public_functions(derived_layout, derived_optimizer, derived_stages),
    **{
        name: _of_any_layout(function)
        for name, function in public_functions(derived_model, derived_position).items()
    },
}
"""Functions that flags.yaml names."""


def arguments(problem: Problem, layout: Layout) -> tuple[Argument, ...]:
    """All flags that PARC sets, without the user's own."""
    table = flag_table(PACKAGE)
    values = table.values(problem, layout, problem.version("megatron"), DERIVED)
    return tuple(
        Argument(row.setting, _words(value), row.group)
        for row, value in values
        if value is not False
    )


def _words(value: Any) -> tuple[str, ...]:
    """Values as words: floats as the shortest text that reads back the same."""
    if value is True:
        return ()
    if isinstance(value, tuple):
        return tuple(str(item) for item in value)
    return (repr(value) if isinstance(value, float) else str(value),)
