"""Pipeline ranks by what they hold; equal ones are priced once."""

from __future__ import annotations

from dataclasses import dataclass

from parc.compiler.ir import Chunk, LayerKind, Model, Split


@dataclass(frozen=True, slots=True)
class StageLoad:
    """What one pipeline rank holds, all its virtual stages together."""

    counts: tuple[int, ...]
    """Decoder layers of each of the model's kinds."""
    embedding: bool
    mtp_layers: int
    loss: bool
    final_norm: bool
    """The norm after the last layer: beside the loss, or beside the last decoder layer where
    prediction layers follow it."""
    chunks: tuple[int, ...] = ()
    """Layers of each virtual stage, prediction layers included, where they are not equal."""

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return sum(self.counts)

    def routed_layers(self, model: Model) -> int:
        """Decoder layers that send tokens to experts."""
        return sum(n for kind, n in zip(model.kinds, self.counts, strict=True) if kind.routed)

    def by_kind(self, model: Model) -> dict[LayerKind, int]:
        """Layers of each kind that there is; prediction layers are of the last one's."""
        counts = dict(zip(model.kinds, self.counts, strict=True))
        counts[model.last_kind] += self.mtp_layers
        return {kind: count for kind, count in counts.items() if count}


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
    return chunks_load(model, split.chunks[stage])


def chunks_load(model: Model, chunks: tuple[Chunk, ...]) -> StageLoad:
    """What ``chunks`` hold together."""
    kinds, pattern = model.kinds, model.layer_kinds
    layers: list[LayerKind] = []
    mtp_layers = 0
    embedding = loss = final_norm = False
    for chunk in chunks:
        layers += pattern[chunk.first_layer : chunk.first_layer + chunk.layers]
        mtp_layers += chunk.mtp_layers
        embedding |= chunk.embedding
        loss |= chunk.loss
        final_norm |= _has_final_norm(model, chunk)
    lengths = tuple(chunk.layers + chunk.mtp_layers for chunk in chunks)
    uneven = lengths if len(set(lengths)) > 1 else ()
    counts = tuple(layers.count(kind) for kind in kinds)
    return StageLoad(counts, embedding, mtp_layers, loss, final_norm, uneven)


def _has_final_norm(model: Model, chunk: Chunk) -> bool:
    """As Megatron-Core builds it (transformer_block.py, has_final_layernorm_in_this_stage)."""
    if not model.mtp_layers:
        return chunk.loss
    return chunk.layers > 0 and chunk.first_layer + chunk.layers == model.layers


def stage_classes(model: Model, split: Split) -> tuple[StageClass, ...]:
    """Distinct loads of the pipeline, by their earliest rank."""
    seen: dict[StageLoad, list[int]] = {}
    for stage in range(len(split.chunks)):
        seen.setdefault(stage_load(model, split, stage), []).append(stage)
    return tuple(StageClass(load, stages[0], len(stages)) for load, stages in seen.items())
