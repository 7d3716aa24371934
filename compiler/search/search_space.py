"""Every layout that the pins leave open, legal or not: the product of the choices of all axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parc.backends.base import Framework
from parc.compiler.ir import Layout, Problem, Recompute, Schedule, Split, Variant
from parc.compiler.search.choose_exchange import Exchange, given_exchange
from parc.compiler.search.enumerate_layouts import (
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
    levels: tuple[Recompute, ...]
    constants: dict[str, Any]
    """Fields that all its layouts share."""
    shard: int
    """Data-parallel ranks that share one state; 0: all."""
    schedule: Schedule | None
    """None: what the virtual stages ask for."""
    exchange: Exchange
    """How the context ranks of a layout exchange keys."""

    @classmethod
    def of(
        cls,
        problem: Problem,
        framework: Framework,
        variant: Variant,
        fastest: Exchange | None = None,
    ) -> Space:
        """The space that ``problem`` leaves open for one variant of ``framework``.

        ``fastest`` chooses the exchange of a variant that leaves it open; without it a ring.
        """
        pins = problem.pins
        beside_tp = pins.sequence_parallel
        if beside_tp is None and "sp" not in framework.strategies:
            beside_tp = False
        comm = variant.cp_comm or "p2p"
        constants = {
            "sequence_parallel": beside_tp,
            "order": pins.order or framework.orders(problem)[0],
            "zero_stage": variant.zero_stage,
            "cp_comm": comm,
            "cp_a2a": 1,
            "offload": variant.offload,
            "zero_plus": variant.zero_plus,
        }
        levels = recompute_levels(problem, framework)
        exchange = given_exchange(problem, comm)
        if variant.cp_comm is None and fastest is not None:
            exchange = fastest
        schedule = variant.schedule
        return cls(problem, framework, levels, constants, variant.dp_shard, schedule, exchange)

    def degrees(self) -> Iterator[Degrees]:
        """Mesh sizes of this space; unless it is pinned, a shard is a proper part of dp."""
        shard, pinned = self.shard, self.problem.pins.dp_shard
        for degrees in degree_choices(self.problem):
            if not shard or pinned or (degrees.dp > shard and degrees.dp % shard == 0):
                yield degrees

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
        fields["dp"] = dp
        fields["dp_shard"] = shard = self.shard or dp
        fields["dp_replicate"] = max(dp // shard, 1)
        fields["world"] = tp * cp * pp * dp
        fields["ep"] = ep
        fields["etp"] = etp
        fields["micro_batch"] = micro_batch
        fields["schedule"] = self.schedule or ("interleaved" if vpp > 1 else "1f1b")
        fields["recompute"] = self.levels[level]
        fields["split"] = split
        if fields["sequence_parallel"] is None:
            fields["sequence_parallel"] = tp > 1 and "sp" in self.framework.strategies
        if cp > 1:
            fields["cp_comm"], fields["cp_a2a"] = self.exchange(layout)
        return layout


def families_of(space: Space) -> Iterator[tuple[Layout, ...]]:
    """Layouts that differ in recompute alone, cheapest recompute first.

    A family stops mattering once its first member that fits is found: more recompute is only
    ever slower. Order: world size (all GPUs first), tp, cp, pp, ep, etp, vpp, micro-batch.
    """
    problem, framework = space.problem, space.framework
    levels = range(len(space.levels))
    for degrees in space.degrees():
        for vpp, split in stage_choices(problem, framework, degrees.pp):
            for micro_batch in micro_batch_choices(problem, degrees.dp):
                family = (*degrees, vpp, micro_batch)
                yield tuple(space.layout((*family, level), split) for level in levels)
