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

DECIDED_BY: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "pp": ("pp",),
    "vpp": ("vpp",),
    "dp_replicate": ("dp",),
    "dp_shard": ("dp",),
    "ep": ("ep",),
    "etp": ("etp",),
    "micro_batch": ("micro_batch",),
    "schedule": ("vpp",),
    "sequence_parallel": ("tp",),
    "zero_stage": (),
    "recompute": ("level",),
    "split": ("pp", "vpp"),
    "order": (),
    "cp_comm": ("tp", "cp"),
    "cp_a2a": ("tp", "cp"),
    "offload": (),
    "zero_plus": (),
    "cuda_graphs": (),
    "gtp": (),
    "egtp": (),
}
"""For each field of a layout, the choices of the search that determine it within a search space. A
space has one value of each field without such a choice."""


def readable_fields(reads: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fields whose values follow from those of ``reads`` within a search space."""
    known = {name for one in reads for name in DECIDED_BY[one]}
    return tuple(name for name, choices in DECIDED_BY.items() if known.issuperset(choices))


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
