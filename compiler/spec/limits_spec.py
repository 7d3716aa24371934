"""``goals.limits:``: what the search may choose, axis by axis."""

from __future__ import annotations

from parc.compiler.spec.base import Strict
from parc.compiler.spec.numbers import Count


class AxisLimit(Strict):
    """What one axis may be; all that is written must hold."""

    min: Count | None = None
    """Smallest degree."""
    max: Count | None = None
    """Largest degree."""
    only: tuple[Count, ...] = ()
    """The degrees that may be tried; empty: any."""
    ban: tuple[Count, ...] = ()
    """Degrees that must not be tried."""


class LimitsSpec(Strict):
    """Limits of the axes that the search decides; a pin must keep them too."""

    tp: AxisLimit | None = None
    """Tensor parallelism."""
    cp: AxisLimit | None = None
    """Context parallelism."""
    pp: AxisLimit | None = None
    """Pipeline parallelism."""
    vpp: AxisLimit | None = None
    """Virtual stages a pipeline rank."""
    dp: AxisLimit | None = None
    """Data parallelism."""
    ep: AxisLimit | None = None
    """Expert parallelism."""
    etp: AxisLimit | None = None
    """Tensor parallelism inside an expert."""
    micro_batch: AxisLimit | None = None
    """Sequences a micro-batch."""
