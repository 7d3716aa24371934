"""A rule that a layout must keep, as data that the search and the diagnostics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from parc.compiler.ir.finding import Finding
from parc.compiler.ir.layout import Layout
from parc.compiler.ir.problem import Problem

EVERYTHING = tuple(field.name for field in fields(Layout))
"""Every field of a layout."""
WORLD = ("tp", "cp", "pp", "dp_replicate", "dp_shard")
"""What ``Layout.world`` is made of."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``broken`` is cheap, it runs for every candidate; ``explain`` runs for what is reported."""

    code: str
    """Short code, ``D01``."""
    fields: tuple[str, ...]
    """Spec paths that the rule reads, the likeliest culprit first."""
    broken: Callable[[Problem, Layout], bool]
    explain: Callable[[Problem, Layout], Finding]
    reads: tuple[str, ...] = EVERYTHING
    """Fields of the layout that ``broken`` reads; the search asks once for each of their values."""
