"""Pipeline ranks by what they hold; equal ones are priced once."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Model, Split


@dataclass(frozen=True, slots=True)
class StageLoad:
    """What one pipeline rank holds, all its virtual stages together."""

    dense_layers: int
    routed_layers: int
    embedding: bool
    mtp_layers: int
    loss: bool

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return self.dense_layers + self.routed_layers


@dataclass(frozen=True, slots=True)
class StageClass:
    """Pipeline ranks that hold the same; ``first`` is the earliest of ``count``.

    Of equal ranks the earliest keeps the most micro-batches in flight, so it has the peak.
    """

    load: StageLoad
    first: int
    count: int


def stage_load(model: Model, split: Split, stage: int) -> StageLoad:
    """What pipeline rank ``stage`` holds."""
    chunks = split.chunks[stage]
    routed = 0
    if model.experts is not None:
        pattern = model.experts.pattern
        routed = sum(sum(pattern[c.first_layer : c.first_layer + c.layers]) for c in chunks)
    return StageLoad(
        dense_layers=split.stage_layers(stage) - routed,
        routed_layers=routed,
        embedding=any(chunk.embedding for chunk in chunks),
        mtp_layers=sum(chunk.mtp_layers for chunk in chunks),
        loss=any(chunk.loss for chunk in chunks),
    )


def stage_classes(model: Model, split: Split) -> tuple[StageClass, ...]:
    """Distinct loads of the pipeline, by their earliest rank."""
    seen: dict[StageLoad, list[int]] = {}
    for stage in range(len(split.chunks)):
        seen.setdefault(stage_load(model, split, stage), []).append(stage)
    return tuple(StageClass(load, stages[0], len(stages)) for load, stages in seen.items())
