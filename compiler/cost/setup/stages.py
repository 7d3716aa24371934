"""Contents of pipeline stages; stages with equal contents are evaluated once."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from parc.compiler.ir import LayerKind, Model, ModelChunk, PipelineSplit, Recompute
from parc.compiler.ir.frozen import frozen

Work = tuple[int, ...]
"""Work of one micro-batch: the number of output heads, then of layers of each kind in the order of
``Model.kinds``. Multi-token-prediction layers count as layers."""


class StageContents(NamedTuple):
    """Layers and other modules of one pipeline rank, in all its virtual stages together.

    A named tuple, because hashing one as a cache key takes a quarter of the time.
    """

    counts: tuple[int, ...]
    """Number of decoder layers of each layer type, in the order of ``Model.kinds``."""
    embedding: bool
    mtp_layers: int
    loss: bool
    final_norm: bool
    """True if the rank has the norm after the last decoder layer."""
    chunks: tuple[int, ...] = ()
    """Number of layers of each virtual stage, including prediction layers. Empty if all stages have
    the same number."""

    @property
    def layers(self) -> int:
        """Return the number of decoder layers, without multi-token-prediction layers."""
        return sum(self.counts)

    def routed_layers(self, model: Model) -> int:
        """Return the number of decoder layers that send tokens to experts."""
        return sum(n for kind, n in zip(model.kinds, self.counts, strict=True) if kind.routed)

    def layers_by_kind(self, model: Model) -> dict[LayerKind, int]:
        """Return {layer type: number of layers} of this pipeline rank.

        Types without layers are left out. Multi-token-prediction layers count as layers of the type
        of the last decoder layer.
        """
        # A prediction layer is built like the last decoder layer (Megatron-Core and DeepSeek-V3).
        last, more = (model.last_kind, self.mtp_layers) if self.mtp_layers else (None, 0)
        pairs = zip(model.kinds, self.counts, strict=True)
        return {kind: n for kind, one in pairs if (n := one + more if kind == last else one)}


@frozen
class EqualStageGroup:
    """Group of ``count`` pipeline ranks with equal contents.

    ``first`` is the earliest of these ranks. It has the highest memory peak, because it has the
    most micro-batches in flight.
    """

    load: StageContents
    first: int
    count: int


def stage_contents(model: Model, split: PipelineSplit, stage: int) -> StageContents:
    """Return the layers and other modules of pipeline rank ``stage``, in all its virtual stages."""
    return contents_of_chunks(model, split.chunks[stage])


def contents_of_chunks(model: Model, chunks: tuple[ModelChunk, ...]) -> StageContents:
    """Return the layers and other modules of the virtual stages ``chunks``, summed up."""
    counts = [0] * len(model.kinds)
    mtp_layers = 0
    embedding = loss = final_norm = False
    for chunk in chunks:
        first, end = chunk.first_layer, chunk.first_layer + chunk.layers
        for index, before in enumerate(model.layers_before_by_kind):
            counts[index] += before[end] - before[first]
        mtp_layers += chunk.mtp_layers
        embedding |= chunk.embedding
        loss |= chunk.loss
        final_norm |= _has_final_norm(model, chunk)
    lengths = tuple(chunk.layers + chunk.mtp_layers for chunk in chunks)
    # Equal chunks need no list, because their order does not change the memory peak.
    uneven = lengths if len(set(lengths)) > 1 else ()
    return StageContents(tuple(counts), embedding, mtp_layers, loss, final_norm, uneven)


def _has_final_norm(model: Model, chunk: ModelChunk) -> bool:
    """Return True if ``chunk`` contains the norm that follows the last decoder layer.

    Source: Megatron-Core, transformer_block.py, has_final_layernorm_in_this_stage.
    """
    if not model.mtp_layers:
        return chunk.loss
    # With prediction layers, the norm follows the last decoder layer, which may be on another
    # stage.
    return chunk.layers > 0 and chunk.first_layer + chunk.layers == model.layers


def recomputed_layers(
    model: Model, recompute: Recompute, load: StageContents, chunks: tuple[ModelChunk, ...]
) -> dict[LayerKind, int]:
    """Return {layer type: number of layers to which ``recompute`` applies} of a pipeline rank.

    ``load`` and ``chunks`` are the contents and the virtual stages of the rank. The method block
    recomputes the first layers of each virtual stage. Other settings apply to all layers.
    """
    counts = load.layers_by_kind(model)
    if recompute.method != "block":
        return counts
    # Megatron recomputes no prediction layer with this method (multi_token_prediction.py).
    again = dict.fromkeys(counts, 0)
    for chunk in chunks:
        end = chunk.first_layer + min(chunk.layers, recompute.layers or 1)
        for kind in model.layer_kinds[chunk.first_layer : end]:
            again[kind] += 1
    return again


def group_equal_stages(loads: tuple[StageContents, ...]) -> tuple[EqualStageGroup, ...]:
    """Return the pipeline ranks with the contents ``loads`` in groups with equal contents.

    The groups are sorted by their earliest rank.
    """
    seen: dict[StageContents, list[int]] = {}
    for stage, load in enumerate(loads):
        seen.setdefault(load, []).append(stage)
    return tuple(EqualStageGroup(load, stages[0], len(stages)) for load, stages in seen.items())


@frozen
class DistinctChunks:
    """Distinct model chunks of a pipeline: chunks that take equal time are listed once."""

    chunks: tuple[ModelChunk, ...]
    contents: tuple[StageContents, ...]
    work: tuple[Work, ...]
    """Work of each of ``chunks``."""
    order: tuple[int, ...]
    """Index into ``chunks`` of every chunk of the pipeline: the first chunks of all ranks, then the
    second chunks, and so on."""


def distinct_chunks(model: Model, split: PipelineSplit) -> DistinctChunks:
    """Return the model chunks of ``split``; chunks that take equal time are listed once."""
    seen: dict[object, int] = {}
    chunks: list[ModelChunk] = []
    order: list[int] = []
    for chunk in chain.from_iterable(zip(*split.chunks, strict=True)):
        kinds = model.layer_kinds[chunk.first_layer : chunk.first_layer + chunk.layers]
        index = seen.setdefault((kinds, chunk.mtp_layers, chunk.loss), len(chunks))
        if index == len(chunks):
            chunks.append(chunk)
        order.append(index)
    contents = tuple(contents_of_chunks(model, (chunk,)) for chunk in chunks)
    work = tuple(work_per_micro_batch(model, load) for load in contents)
    return DistinctChunks(tuple(chunks), contents, work, tuple(order))


def work_per_micro_batch(model: Model, load: StageContents) -> Work:
    """Return the work of a stage with the layers and other modules ``load``."""
    counts = load.layers_by_kind(model)
    heads = int(load.loss) + load.mtp_layers
    return (heads, *[counts.get(kind, 0) for kind in model.kinds])
