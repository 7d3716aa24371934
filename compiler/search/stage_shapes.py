"""Stage splits reduced to what time and memory depend on, for one pipeline size and any mesh."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from parc.compiler.cost.schedules.estimates import micro_batches_in_flight
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.stages import StageClass, StageLoad
from parc.compiler.ir import Model, Schedule

LOADS = tuple(item.name for item in fields(StageLoad) if item.name not in ("chunks", "counts"))


@dataclass(slots=True, eq=False)
class StageShape:
    """Stages with equal contents, for one ``pp`` and each ``vpp`` that leads to them.

    Compared by identity: the search builds one object per distinct tuple of classes.
    """

    pp: int
    classes: tuple[StageClass, ...]
    full: tuple[StageClass, ...]
    """Members of ``classes`` that can have the peak memory. The other ones contain less of
    everything."""
    counts: tuple[tuple[int, ...], ...]
    """Layers by kind per member of ``full``, prediction layers included."""
    paces: tuple[tuple[tuple[int, ...], int, int], ...]
    """(layers by kind, output heads, ranks) per set of ranks that take equally long."""
    schedule: Schedule | None
    """None: 1f1b, or interleaved with virtual stages."""
    flights: dict[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Model,
        pp: int,
        classes: tuple[StageClass, ...],
        schedule: Schedule | None = None,
    ) -> StageShape:
        """Merge stages of equal time, and drop those that cannot have the peak memory."""
        paces: dict[tuple[tuple[int, ...], int], int] = {}
        for one in classes:
            pace = _pace(model, one.load)
            paces[pace] = paces.get(pace, 0) + one.count
        full = tuple(one for one in classes if not any(_dominates(two, one) for two in classes))
        return cls(
            pp=pp,
            classes=classes,
            full=full,
            counts=tuple(_pace(model, one.load)[0] for one in full),
            paces=tuple((*pace, count) for pace, count in paces.items()),
            schedule=schedule,
        )

    def in_flight(self, vpp: int, micro_batches: int) -> tuple[float, ...]:
        """Return the micro-batches in flight at the peak, per member of ``full``."""
        flights = self.flights.get((vpp, micro_batches))
        if flights is None:
            schedule = self.schedule or ("interleaved" if vpp > 1 else "1f1b")
            shape = PipelineShape(self.pp, max(micro_batches, 1), vpp)
            flights = self.flights[vpp, micro_batches] = tuple(
                micro_batches_in_flight(schedule, one.first, shape, one.load.chunks)
                for one in self.full
            )
        return flights


def _pace(model: Model, load: StageLoad) -> tuple[tuple[int, ...], int]:
    """Return (layers by kind, output heads) that a micro-batch passes on a stage."""
    counts = load.by_kind(model)
    return tuple(counts.get(kind, 0) for kind in model.kinds), int(load.loss) + load.mtp_layers


def _dominates(large: StageClass, small: StageClass) -> bool:
    """Return True if ``large`` contains all of ``small``, and more micro-batches of it."""
    if large.first >= small.first or small.load.chunks != large.load.chunks:
        return False
    if any(own < other for own, other in zip(large.load.counts, small.load.counts, strict=True)):
        return False
    return all(getattr(large.load, name) >= getattr(small.load, name) for name in LOADS)
