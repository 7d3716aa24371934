"""Stage splits reduced to the facts that step time and peak memory depend on, for any mesh."""

from __future__ import annotations

from dataclasses import dataclass, field

from parc.compiler.cost.schedules.estimates import micro_batches_in_flight
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.stages import (
    EqualStageGroup,
    StageContents,
    Work,
    work_per_micro_batch,
)
from parc.compiler.ir import Model, Schedule

LOADS = tuple(name for name in StageContents._fields if name not in ("chunks", "counts"))


@dataclass(slots=True, eq=False)
class StageShape:
    """Stages of a pipeline with ``pp`` ranks, grouped into classes of equal contents.

    Virtual pipeline sizes that lead to the same classes share one object. Objects are compared by
    identity, because the search builds one object per distinct tuple of classes.
    """

    pp: int
    classes: tuple[EqualStageGroup, ...]
    peak_candidates: tuple[EqualStageGroup, ...]
    """Groups of stages that can have the memory peak. Each other group needs at most as much memory
    as one of these."""
    ranks: tuple[int, ...]
    """Number of pipeline ranks that each group in ``peak_candidates`` stands for: its own, and
    those that need at most as much memory."""
    counts: tuple[tuple[int, ...], ...]
    """Layers by kind, including multi-token prediction layers, for each group in
    ``peak_candidates``."""
    work: tuple[tuple[Work, int], ...]
    """(work of one rank, ranks) for each set of ranks with equal computation time."""
    whole: Work
    """Work of all ranks together."""
    schedule: Schedule | None
    """Pipeline schedule. None means interleaved if vpp is larger than 1, and 1f1b otherwise."""
    flights: dict[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def from_classes(
        cls,
        model: Model,
        pp: int,
        classes: tuple[EqualStageGroup, ...],
        schedule: Schedule | None = None,
    ) -> StageShape:
        """Return the shape of a pipeline that consists of the groups of equal stages ``classes``.

        ``work`` of the result merges groups with equal computation time. ``peak_candidates`` of the
        result omits groups that cannot have the memory peak.
        """
        work: dict[Work, int] = {}
        for one in classes:
            work_of_stage = work_per_micro_batch(model, one.load)
            work[work_of_stage] = work.get(work_of_stage, 0) + one.count
        peak_candidates = tuple(
            one
            for one in classes
            if not any(_needs_at_least_as_much_memory(two, one) for two in classes)
        )
        fullest = [
            next(
                one
                for one in peak_candidates
                if one is two or _needs_at_least_as_much_memory(one, two)
            )
            for two in classes
        ]
        return cls(
            pp=pp,
            classes=classes,
            peak_candidates=peak_candidates,
            ranks=tuple(
                sum(two.count for one, two in zip(fullest, classes, strict=True) if one is own)
                for own in peak_candidates
            ),
            counts=tuple(work_per_micro_batch(model, one.load)[1:] for one in peak_candidates),
            work=tuple(work.items()),
            whole=_sum_over_ranks(work),
            schedule=schedule,
        )

    def in_flight_at_peak(self, vpp: int, micro_batches: int) -> tuple[float, ...]:
        """Return the peak number of micro-batches in flight for each group in ``peak_candidates``.

        A group consists of pipeline stages with equal layers and modules.
        """
        flights = self.flights.get((vpp, micro_batches))
        if flights is None:
            schedule = self.schedule or ("interleaved" if vpp > 1 else "1f1b")
            # An invalid layout, which a rule rejects later, can have no micro-batch.
            shape = PipelineShape(self.pp, max(micro_batches, 1), vpp)
            flights = self.flights[vpp, micro_batches] = tuple(
                [
                    micro_batches_in_flight(schedule, one.first, shape, one.load.chunks)
                    for one in self.peak_candidates
                ]
            )
        return flights


def _sum_over_ranks(work: dict[Work, int]) -> Work:
    """Return the work of all ranks; ``work`` is {work of one rank: ranks}."""
    columns = zip(*([count * ranks for count in one] for one, ranks in work.items()), strict=True)
    return tuple(map(sum, columns))


def _needs_at_least_as_much_memory(large: EqualStageGroup, small: EqualStageGroup) -> bool:
    """Return True if stages like ``large`` need at least as much memory as stages like ``small``.

    This is certain if ``large`` contains at least as many layers and modules of each kind and is
    earlier in the pipeline, because earlier stages keep more micro-batches in flight.
    """
    # Earlier ranks keep more micro-batches in flight in 1F1B schedules.
    if large.first >= small.first or small.load.chunks != large.load.chunks:
        return False
    if any(own < other for own, other in zip(large.load.counts, small.load.counts, strict=True)):
        return False
    return all(getattr(large.load, name) >= getattr(small.load, name) for name in LOADS)
