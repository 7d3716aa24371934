"""The search space of one problem: all layouts that the spec leaves open, valid or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parc.backends.base import Framework
from parc.compiler.ir import Layout, LayoutVariant, PipelineSplit, Problem, Recompute, Schedule
from parc.compiler.ir.frozen import frozen
from parc.compiler.search.choose_context_exchange import ChooseExchange, fixed_exchange
from parc.compiler.search.enumerate_layouts import (
    LayoutPoint,
    ParallelSizes,
    micro_batch_choices,
    parallel_size_choices,
    recompute_levels,
    stage_choices,
)


@frozen
class LayoutSpace:
    """Search space of one framework variant: the combinations of the values to try on each axis."""

    problem: Problem
    framework: Framework
    levels: tuple[Recompute, ...]
    """Recompute levels that ``LayoutPoint.level`` can select."""
    sibling_levels: int
    """Number of levels that are tried with every layout. They come first in ``levels``, from the
    least to the most recompute. Further levels recompute the first n layers of each model chunk,
    for n = 1, 2 and so on."""
    constants: dict[str, Any]
    """Values of the fields that are equal in all layouts of the space."""
    shard: int
    """Number of data-parallel ranks over which the state is sharded; 0 means all data-parallel
    ranks."""
    schedule: Schedule | None
    """Pipeline schedule. None means interleaved if vpp is larger than 1, and 1f1b otherwise."""
    exchange: ChooseExchange
    """Function that chooses how the context-parallel ranks exchange keys and values."""

    @classmethod
    def for_variant(
        cls,
        problem: Problem,
        framework: Framework,
        variant: LayoutVariant,
        fastest: ChooseExchange | None = None,
    ) -> LayoutSpace:
        """Return the search space of ``problem`` for one variant of ``framework``.

        If ``variant`` does not set the context-parallel exchange, ``fastest`` chooses the exchange.
        If ``fastest`` is None too, the exchange is a ring.
        """
        pins = problem.pins
        sequence_parallel = pins.sequence_parallel
        if sequence_parallel is None:
            sequence_parallel = variant.sequence_parallel
        if sequence_parallel is None and "sp" not in framework.strategies:
            sequence_parallel = False
        elif sequence_parallel and "sp" in framework.strategies:
            # Frameworks switch it off at tp 1, where nothing is split: it has the effect of auto.
            sequence_parallel = None
        comm = variant.cp_comm or "p2p"
        constants = {
            "sequence_parallel": sequence_parallel,
            "order": pins.order or framework.rank_orders(problem)[0],
            "zero_stage": variant.zero_stage,
            "cp_comm": comm,
            "cp_a2a": 1,
            "offload": variant.offload,
            "zero_plus": variant.zero_plus,
            "cuda_graphs": variant.cuda_graphs,
            "gtp": variant.gtp,
            "egtp": variant.egtp,
        }
        levels = recompute_levels(problem, framework)
        sibling_levels = len(levels)
        if framework.recomputes_first_layers and problem.pins.recompute is None:
            counts = range(1, problem.model.layers + 1)
            levels += tuple(Recompute("full", (), "block", count) for count in counts)
        exchange = fixed_exchange(problem, comm)
        if variant.cp_comm is None and fastest is not None:
            exchange = fastest
        schedule = variant.schedule
        shard = variant.dp_shard
        return cls(problem, framework, levels, sibling_levels, constants, shard, schedule, exchange)

    def parallel_sizes(self) -> Iterator[ParallelSizes]:
        """Yield the parallel sizes to try.

        If the variant sets a shard size and the spec does not, dp must be larger than the shard
        size and a multiple of the shard size.
        """
        shard, pinned = self.shard * self.constants["gtp"], self.problem.pins.dp_shard
        for degrees in parallel_size_choices(self.problem):
            # A shard size equal to dp is full sharding, which another variant covers.
            if not shard or pinned or (degrees.dp > shard and degrees.dp % shard == 0):
                yield degrees

    def build_layout(self, point: LayoutPoint, split: PipelineSplit) -> Layout:
        """Return the layout that belongs to ``point`` and has the stage split ``split``."""
        tp, cp, pp, dp, ep, etp, vpp, micro_batch, level, _ = point
        # The constructor of a frozen dataclass sets each field by a function call. The search
        # builds thousands of layouts, so the dictionary of an empty one is filled directly, with
        # the cached properties (dp, world) that rules read most.
        layout = object.__new__(Layout)
        fields = layout.__dict__
        fields.update(self.constants)
        fields["tp"] = tp
        fields["cp"] = cp
        fields["pp"] = pp
        fields["vpp"] = vpp
        fields["dp"] = dp
        copies = max(dp // fields["gtp"], 1)
        fields["dp_shard"] = shard = self.shard or copies
        fields["dp_replicate"] = max(copies // shard, 1)
        fields["world"] = tp * cp * pp * dp
        fields["ep"] = ep
        fields["etp"] = etp
        fields["micro_batch"] = micro_batch
        fields["schedule"] = self.schedule or ("interleaved" if vpp > 1 else "1f1b")
        fields["recompute"] = self.levels[level]
        fields["split"] = split
        if fields["sequence_parallel"] is None:
            fields["sequence_parallel"] = tp > 1 and "sp" in self.framework.strategies
        # The exchange may depend on the sizes above, so it is chosen last.
        if cp > 1:
            fields["cp_comm"], fields["cp_a2a"] = self.exchange(layout)
        return layout


def sibling_layouts(space: LayoutSpace) -> Iterator[tuple[Layout, ...]]:
    """Yield groups of layouts that differ only in recompute.

    Each group starts with the layout with the least recompute. Groups are ordered by tp, cp, pp,
    dp, etp, ep, vpp and micro-batch.
    """
    problem, framework = space.problem, space.framework
    levels = range(space.sibling_levels)
    for degrees in space.parallel_sizes():
        for vpp, split in stage_choices(problem, framework, degrees.pp):
            for micro_batch in micro_batch_choices(problem, degrees.dp):
                first = LayoutPoint(*degrees, vpp, micro_batch)
                yield tuple(
                    space.build_layout(first.with_recompute_level(level), split) for level in levels
                )
