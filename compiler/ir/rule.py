"""Validity rule of training layouts, which the search and the diagnostics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from parc.compiler.ir.finding import Finding
from parc.compiler.ir.frozen import frozen
from parc.compiler.ir.layout import Layout
from parc.compiler.ir.problem import Problem

ALL_LAYOUT_FIELDS = tuple(field.name for field in fields(Layout))
"""Names of all fields of ``Layout``."""
WORLD_FIELDS = ("tp", "cp", "pp", "dp_replicate", "dp_shard", "gtp")
"""Names of the fields from which ``Layout.world`` is computed."""


@frozen
class Rule:
    """Condition that makes a layout invalid, and the explanation for the user.

    ``broken`` must be fast, because it runs for every candidate. ``explain`` runs only for layouts
    that are reported.
    """

    code: str
    """Diagnostic code without prefix, such as ``D01``."""
    fields: tuple[str, ...]
    """Spec paths of the values that the rule reads, the most likely cause first."""
    broken: Callable[[Problem, Layout], bool]
    """Predicate that is True if the layout violates the rule."""
    explain: Callable[[Problem, Layout], Finding]
    """Function that returns the finding for a layout that violates the rule."""
    reads: tuple[str, ...] = ALL_LAYOUT_FIELDS
    """Names of the layout fields that ``broken`` reads. The search evaluates ``broken`` once per
    combination of their values, so a missing name gives wrong results."""
