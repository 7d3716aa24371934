"""Checks of a finished plan; commands can also run single checks on an unfinished plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from parc.compiler.diagnostics.sink import Sink

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class PlanCheck(Generic[P]):
    """Check of a finished plan, which ``parc lint`` also runs on a plan with unknown fields.

    A check reads only the plan, so that lint can determine which fact the check needs. A check
    reports one kind of problem, because the first unknown field that it reads ends the check.
    """

    codes: tuple[str, ...]
    """Diagnostic codes that ``run`` reports."""
    run: Callable[[P, Sink], None]
    """Function that reports the findings on the plan."""
