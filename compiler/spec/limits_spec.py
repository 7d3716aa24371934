"""Section ``goals.limits``: parallel sizes from which the search can choose, by axis."""

from __future__ import annotations

from parc.compiler.spec.base import Strict
from parc.compiler.spec.numbers import Count


class AxisLimit(Strict):
    """Limit of one axis; all conditions that are set must be met."""

    min: Count | None = None
    """Smallest value. If absent, 1."""
    max: Count | None = None
    """Largest value. If absent, there is no upper limit."""
    only: tuple[Count, ...] = ()
    """Allowed values. If empty, all values are allowed."""
    ban: tuple[Count, ...] = ()
    """Values that are not allowed."""


class LimitsSpec(Strict):
    """Limits of the axes that the search decides. Pinned values must meet them too."""

    tp: AxisLimit | None = None
    """Limit of the tensor parallel size."""
    cp: AxisLimit | None = None
    """Limit of the context parallel size."""
    pp: AxisLimit | None = None
    """Limit of the pipeline parallel size."""
    vpp: AxisLimit | None = None
    """Limit of the virtual pipeline size (model chunks per pipeline rank)."""
    dp: AxisLimit | None = None
    """Limit of the data parallel size."""
    ep: AxisLimit | None = None
    """Limit of the expert parallel size."""
    etp: AxisLimit | None = None
    """Limit of the tensor parallel size inside an expert."""
    micro_batch: AxisLimit | None = None
    """Limit of the sequences per micro-batch."""
