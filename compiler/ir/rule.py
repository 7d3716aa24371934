"""Rule for valid layouts, as data that the search and the diagnostics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from parc.compiler.ir.finding import Finding
from parc.compiler.ir.layout import Layout
from parc.compiler.ir.problem import Problem

ALL_LAYOUT_FIELDS = tuple(field.name for field in fields(Layout))
"""Names of all fields of a layout."""
WORLD_FIELDS = ("tp", "cp", "pp", "dp_replicate", "dp_shard")
"""Fields that determine ``Layout.world``."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Predicate that drops invalid layouts, with an explanation for the user.

    ``broken`` must be cheap, because it runs for all candidates; ``explain`` only runs for layouts
    that are reported.
    """

    code: str
    """Short code, ``D01``."""
    fields: tuple[str, ...]
    """Spec paths that the rule reads, the most likely cause first."""
    broken: Callable[[Problem, Layout], bool]
    explain: Callable[[Problem, Layout], Finding]
    reads: tuple[str, ...] = ALL_LAYOUT_FIELDS
    """Fields of the layout that ``broken`` reads. The search calls it once per combination of their
    values, so a list that is too short gives wrong results."""
