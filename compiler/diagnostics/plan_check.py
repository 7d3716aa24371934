"""Checks of finished plans as data, which commands can run one by one on unfinished plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from parc.compiler.diagnostics.sink import Sink

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class PlanCheck(Generic[P]):
    """Check of a finished plan, which ``parc lint`` also runs on a plan with unknown fields.

    A check reads the plan only, so that lint can tell which fact it needs. One check reports one
    kind of problem, because the first unknown field ends it.
    """

    codes: tuple[str, ...]
    """Diagnostic codes that ``run`` reports."""
    run: Callable[[P, Sink], None]
    """Function that reports the findings on the plan."""
