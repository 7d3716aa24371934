"""Every layout that the pins leave open, legal or not: the product of the choices of all axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parc.backends.base import Framework
from parc.compiler.ir import Layout, Problem, Recompute, Split
from parc.compiler.passes.enumerate_layouts import (
    Degrees,
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
    order: str
    levels: tuple[Recompute, ...]

    @classmethod
    def of(cls, problem: Problem, framework: Framework) -> Space:
        """The space that ``problem`` leaves open for ``framework``."""
        order = problem.pins.order or framework.orders(problem)[0]
        return cls(problem, framework, order, recompute_levels(problem))

    def layout(
        self, degrees: Degrees, stages: tuple[int, Split], micro_batch: int, level: int
    ) -> Layout:
        """One point: ``stages`` is (vpp, split), ``level`` an index into ``levels``."""
        pins = self.problem.pins
        vpp, split = stages
        sequence_parallel = pins.sequence_parallel
        return Layout(
            tp=degrees.tp,
            cp=degrees.cp,
            pp=degrees.pp,
            vpp=vpp,
            dp_replicate=1,
            dp_shard=degrees.dp,
            ep=degrees.ep,
            etp=degrees.etp,
            micro_batch=micro_batch,
            schedule="interleaved" if vpp > 1 else "1f1b",
            sequence_parallel=degrees.tp > 1 if sequence_parallel is None else sequence_parallel,
            zero_stage=1 if pins.zero_stage is None else pins.zero_stage,
            recompute=self.levels[level],
            split=split,
            order=self.order,
        )

    def point(self, layout: Layout) -> Point:
        """Where ``layout`` is in this space; ValueError where it is not."""
        level = self.levels.index(layout.recompute)
        degrees = (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep, layout.etp)
        return (*degrees, layout.vpp, layout.micro_batch, level)


def enumerate_layouts(problem: Problem, framework: Framework) -> Iterator[tuple[Layout, ...]]:
    """Families of layouts that differ in recompute alone, cheapest recompute first.

    A family stops mattering once its first member that fits is found: more recompute is only
    ever slower. Order: world size (all GPUs first), tp, cp, pp, ep, etp, vpp, micro-batch.
    """
    space = Space.of(problem, framework)
    levels = range(len(space.levels))
    for degrees in degree_choices(problem):
        for stages in stage_choices(problem, framework, degrees.pp):
            for micro_batch in micro_batch_choices(problem, degrees.dp):
                yield tuple(space.layout(degrees, stages, micro_batch, level) for level in levels)
