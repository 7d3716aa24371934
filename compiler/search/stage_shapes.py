"""What the search knows about one way to cut a model into stages, whatever the mesh."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from parc.compiler.cost.schedules.table import Shape
from parc.compiler.cost.schedules.uneven_flight import held_batches
from parc.compiler.cost.setup.stages import StageClass, StageLoad
from parc.compiler.ir import Model, Schedule

LOADS = tuple(item.name for item in fields(StageLoad) if item.name not in ("chunks", "counts"))


@dataclass(slots=True, eq=False)
class StageShape:
    """Stages that hold the same, for one ``pp`` and every ``vpp`` that leads to them.

    Equal by identity: the search makes one for each distinct tuple of classes.
    """

    pp: int
    classes: tuple[StageClass, ...]
    full: tuple[StageClass, ...]
    """Those of ``classes`` that can hold the peak; the others hold less in every respect."""
    counts: tuple[tuple[int, ...], ...]
    """Layers by kind of each of ``full``, prediction layers included."""
    paces: tuple[tuple[tuple[int, ...], int, int], ...]
    """(layers by kind, heads, ranks) of the ranks that take equally long."""
    schedule: Schedule | None
    """None: 1f1b, or interleaved where there are virtual stages."""
    flights: dict[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Model,
        pp: int,
        classes: tuple[StageClass, ...],
        schedule: Schedule | None = None,
    ) -> StageShape:
        """Merge what is equal for time, drop what cannot matter for memory."""
        paces: dict[tuple[tuple[int, ...], int], int] = {}
        for kind in classes:
            pace = _pace(model, kind.load)
            paces[pace] = paces.get(pace, 0) + kind.count
        full = tuple(one for one in classes if not any(_holds(two, one) for two in classes))
        return cls(
            pp=pp,
            classes=classes,
            full=full,
            counts=tuple(_pace(model, kind.load)[0] for kind in full),
            paces=tuple((*pace, count) for pace, count in paces.items()),
            schedule=schedule,
        )

    def in_flight(self, vpp: int, micro_batches: int) -> tuple[float, ...]:
        """Whole micro-batches that each class of ``full`` keeps at its peak."""
        flights = self.flights.get((vpp, micro_batches))
        if flights is None:
            schedule = self.schedule or ("interleaved" if vpp > 1 else "1f1b")
            shape = Shape(self.pp, max(micro_batches, 1), vpp)
            flights = self.flights[vpp, micro_batches] = tuple(
                held_batches(schedule, kind.first, shape, kind.load.chunks) for kind in self.full
            )
        return flights


def _pace(model: Model, load: StageLoad) -> tuple[tuple[int, ...], int]:
    """(layers by kind, heads) that a micro-batch passes on a stage."""
    counts = load.by_kind(model)
    return tuple(counts.get(kind, 0) for kind in model.kinds), int(load.loss) + load.mtp_layers


def _holds(large: StageClass, small: StageClass) -> bool:
    """Whether ``large`` holds all that ``small`` does, and more micro-batches of it."""
    if large.first >= small.first or small.load.chunks != large.load.chunks:
        return False
    if any(own < other for own, other in zip(large.load.counts, small.load.counts, strict=True)):
        return False
    return all(getattr(large.load, name) >= getattr(small.load, name) for name in LOADS)
