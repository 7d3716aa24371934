"""Numbers of layers and output heads on the stages and critical paths of a pipeline.

The numbers depend on the stage split and the recompute level only. With the times of one layer and
of one output head, which depend on the parallel sizes and the micro-batch, they give the times of
stages and paths as sums of products. With block recompute, the numbers of recomputed layers of each
kind follow those of ``Work``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter, le
from typing import NamedTuple

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import (
    StageContents,
    Work,
    recomputed_layers,
    work_per_micro_batch,
)
from parc.compiler.ir import Layout, ModelChunk, Recompute
from parc.compiler.search.enumerate_layouts import BuildLayout, LayoutPoint
from parc.compiler.search.stage_shapes import StageShape

StageWork = tuple[tuple[Work, int], ...]
"""(work of one rank, ranks) for each set of ranks with equal computation time."""


class RankPaths(NamedTuple):
    """Work of the two ``critical_paths`` through one rank."""

    whole: Work
    """Work of the rank per micro-batch."""
    first: Work
    """Work before the first chunk of the rank."""
    second: Work
    """Work before the last chunk of the rank, minus that which the second path misses."""
    first_hops: int
    second_hops: int


class WorkCounts:
    """Cache of the work of stages and paths of one layout search."""

    def __init__(
        self, cost_model: CostModel, build: BuildLayout, levels: tuple[Recompute, ...]
    ) -> None:
        """Create an empty cache.

        ``build`` returns the layout for a ``LayoutPoint``, whose level is an index of ``levels``.
        """
        self._cost_model, self._build = cost_model, build
        # Block recompute repeats layers per chunk, so its work depends on pp and vpp.
        self.is_block = tuple(level.method == "block" for level in levels)
        self._stages: dict[tuple[StageShape, int, int], StageWork] = {}
        self._paths: dict[tuple[StageShape, int, int], tuple[RankPaths, ...]] = {}

    def of_stages(self, point: LayoutPoint, shape: StageShape) -> StageWork:
        """Return the work of the stages ``shape`` of layout ``point``, with its recompute."""
        if not self.is_block[point.level]:
            return shape.work
        key = (shape, point.level, point.vpp)
        found = self._stages.get(key)
        if found is None:
            layout = self._build(point)
            found = self._stages[key] = tuple(
                (self._with_recompute(layout, one.load, layout.split.chunks[one.first]), one.count)
                for one in shape.classes
            )
        return found

    def of_paths(self, point: LayoutPoint, shape: StageShape) -> tuple[RankPaths, ...]:
        """Return the work of the critical paths of layout ``point``, which is interleaved."""
        is_block = self.is_block[point.level]
        key = (shape, point.level if is_block else -1, point.vpp)
        found = self._paths.get(key)
        if found is None:
            layout = self._build(point)
            distinct = self._cost_model.distinct_chunks(layout.split)
            work = distinct.work
            if is_block:
                work = tuple(
                    self._with_recompute(layout, load, (chunk,))
                    for chunk, load in zip(distinct.chunks, distinct.contents, strict=True)
                )
            found = self._paths[key] = work_of_paths(shape.pp, work, distinct.order)
        return found

    def _with_recompute(
        self, layout: Layout, load: StageContents, chunks: tuple[ModelChunk, ...]
    ) -> Work:
        """Return the work of ``chunks``, then their recomputed layers of each kind."""
        model = self._cost_model.problem.model
        again = recomputed_layers(model, layout.recompute, load, chunks)
        repeated = [again.get(kind, 0) for kind in model.kinds]
        return (*work_per_micro_batch(model, load), *repeated)


def work_of_paths(
    ranks: int, chunks: Sequence[Work], order: Sequence[int]
) -> tuple[RankPaths, ...]:
    """Return the work of the critical paths (``critical_paths``) through the ranks, last first.

    Only the paths through ranks that can be slower than all later ranks are returned.

    Args:
        ranks: pipeline ranks.
        chunks: work of the distinct chunks.
        order: index into ``chunks`` of every chunk, in model order.
    """
    columns = list(zip(*chunks, strict=True))
    # Per component of the work: its sum over the first n chunks, for each n.
    sums = [list(accumulate(map(column.__getitem__, order), initial=0)) for column in columns]
    last = len(order) - ranks
    distinct = {tuple(order[rank::ranks]): rank for rank in range(ranks)}
    found = list[RankPaths]()
    for own, rank in sorted(distinct.items(), key=itemgetter(1), reverse=True):
        whole = tuple([sum(map(column.__getitem__, own)) for column in columns])
        # A rank with no more work of any kind than a later one is not slower.
        if any(all(map(le, whole, one.whole)) for one in found):
            continue
        first = tuple([one[rank] for one in sums])
        second = tuple(
            [
                one[last + rank] - ranks * (each - late)
                for one, each, late in zip(sums, whole, chunks[own[-1]], strict=True)
            ]
        )
        found.append(RankPaths(whole, first, second, 2 * rank, 2 * (last + rank)))
    return tuple(found)
