"""A rule that a serving layout must keep, as data that the search and the diagnostics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parc.compiler.ir.finding import Finding
from parc.compiler.ir.serving import ServingLayout
from parc.compiler.ir.serving_plan import ServingProblem


@dataclass(frozen=True, slots=True)
class ServingRule:
    """``broken`` is cheap, it runs for every candidate; ``explain`` runs for what is reported."""

    code: str
    """Short code, ``D01``."""
    fields: tuple[str, ...]
    """Spec paths that the rule reads, the likeliest culprit first."""
    broken: Callable[[ServingProblem, ServingLayout], bool]
    explain: Callable[[ServingProblem, ServingLayout], Finding]
