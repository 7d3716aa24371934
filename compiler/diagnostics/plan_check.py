"""Checks of a finished plan; commands can also run single checks on an unfinished plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from parc.compiler.diagnostics.sink import Sink

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class PlanCheck(Generic[P]):
    """Check of a finished plan for one kind of problem.

    ``parc lint`` also runs the check on a plan with unknown fields. The first unknown field that a
    check reads ends the check, and lint reports this field as the missing fact. For this reason, a
    check reads only the plan and covers only one kind of problem.
    """

    codes: tuple[str, ...]
    """Diagnostic codes that ``run`` reports."""
    run: Callable[[P, Sink], None]
    """Function that reports the findings on a plan to a sink."""
