"""Every layout that the pins leave open, legal or not: the product of the choices of all axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parc.backends.base import Framework
from parc.compiler.ir import Layout, Problem, Recompute, Split
from parc.compiler.passes.enumerate_layouts import (
    degree_choices,
    micro_batch_choices,
    recompute_levels,
    stage_choices,
)

Point = tuple[int, ...]
"""(tp, cp, pp, dp, ep, etp, vpp, micro-batch, index of the recompute level)."""


@dataclass(frozen=True, slots=True)
class Space:
    """The search space of one problem; ``levels`` are its recompute choices, cheapest first."""

    problem: Problem
    framework: Framework
    levels: tuple[Recompute, ...]
    constants: dict[str, Any]
    """Fields that all its layouts share."""

    @classmethod
    def of(cls, problem: Problem, framework: Framework) -> Space:
        """The space that ``problem`` leaves open for ``framework``."""
        pins = problem.pins
        constants = {
            "dp_replicate": 1,
            "sequence_parallel": pins.sequence_parallel,
            "zero_stage": 1 if pins.zero_stage is None else pins.zero_stage,
            "order": pins.order or framework.orders(problem)[0],
        }
        return cls(problem, framework, recompute_levels(problem), constants)

    def layout(self, point: Point, split: Split) -> Layout:
        """The layout of one point; ``split`` is what its pp and vpp stand for."""
        tp, cp, pp, dp, ep, etp, vpp, micro_batch, level = point
        # A frozen dataclass sets its fields one call at a time; thousands are built, so fill the
        # dictionary of an empty one, with the properties that rules ask for.
        layout = object.__new__(Layout)
        fields = layout.__dict__
        fields.update(self.constants)
        fields["tp"] = tp
        fields["cp"] = cp
        fields["pp"] = pp
        fields["vpp"] = vpp
        fields["dp"] = fields["dp_shard"] = dp
        fields["world"] = tp * cp * pp * dp
        fields["ep"] = ep
        fields["etp"] = etp
        fields["micro_batch"] = micro_batch
        fields["schedule"] = "interleaved" if vpp > 1 else "1f1b"
        fields["recompute"] = self.levels[level]
        fields["split"] = split
        if fields["sequence_parallel"] is None:
            fields["sequence_parallel"] = tp > 1
        return layout


def enumerate_layouts(problem: Problem, framework: Framework) -> Iterator[tuple[Layout, ...]]:
    """Families of layouts that differ in recompute alone, cheapest recompute first.

    A family stops mattering once its first member that fits is found: more recompute is only
    ever slower. Order: world size (all GPUs first), tp, cp, pp, ep, etp, vpp, micro-batch.
    """
    space = Space.of(problem, framework)
    levels = range(len(space.levels))
    for degrees in degree_choices(problem):
        for vpp, split in stage_choices(problem, framework, degrees.pp):
            for micro_batch in micro_batch_choices(problem, degrees.dp):
                family = (*degrees, vpp, micro_batch)
                yield tuple(space.layout((*family, level), split) for level in levels)
