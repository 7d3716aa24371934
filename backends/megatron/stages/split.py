"""Assignment of layers to model chunks: as the spec sets it, else in the simplest balanced form.

The forms are, the simplest first: ``even``, which needs no flags; ``counted``, in which the
embedding or the loss counts as a layer; ``first-last``, which sets the layers of the first and the
last rank; and ``string``, a layout string. Models with a layer pattern use ``string`` unless the
spec sets another form. Source: megatron/core/transformer/transformer_block.py,
``get_num_layers_to_build``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from parc.backends.megatron.stages.balance import MtpAndLossLoads, balance_stages
from parc.backends.megatron.stages.balance_pattern import balance_pattern
from parc.backends.megatron.stages.layer_loads import layer_loads, loss_load
from parc.backends.megatron.stages.layout_string import (
    LayoutStringError,
    Stage,
    format_layout_string,
    parse_layout_string,
)
from parc.compiler.ir import Layout, Model, ModelChunk, Pins, PipelineSplit, Problem
from parc.compiler.ir.frozen import frozen

COUNTED_ENDS = ((False, True), (True, False), (True, True))
"""(embedding, loss): which of them count as a layer, in the order in which this is tried. The loss
is first, because it costs time, and the embedding hardly any."""
MOST_MTP_SHARE = 0.1
"""Fraction of a rank's layers up to which MTP layers are ignored when stages are balanced."""


@frozen
class ModelDepth:
    """Layer counts of a model, and loads of its parts in units of one decoder layer."""

    layers: int
    mtp_layers: int
    mtp_load: int
    loss_load: int
    loads: tuple[float, ...] = ()
    """Load per layer of a pattern, with mean 1; empty if all layers are identical."""

    def chunk_load(self, chunk: ModelChunk) -> float:
        """Return the computing load of ``chunk``, in units of one decoder layer."""
        first, count = chunk.first_layer, chunk.layers
        own = sum(self.loads[first : first + count]) if self.loads else count
        return own + chunk.mtp_layers * self.mtp_load + chunk.loss * self.loss_load


@frozen
class SplitPins:
    """Settings of the spec's layout that determine the split; None if not set."""

    text: str | None
    first: int | None
    last: int | None
    embedding: bool | None
    loss: bool | None

    @classmethod
    def from_pins(cls, pins: Pins) -> SplitPins:
        """Return the settings in ``pins`` that determine the split of the layers."""
        return cls(
            pins.pipeline_layout,
            pins.first_stage_layers,
            pins.last_stage_layers,
            pins.count_embedding,
            pins.count_loss,
        )

    @property
    def is_unrestricted(self) -> bool:
        """True if the spec sets nothing that restricts the split of the layers."""
        return self.text is None and not (self.first or self.last or self.embedding or self.loss)


NO_PINS = SplitPins(None, None, None, None, None)
"""Settings of a spec that leaves the split open."""


def model_depth(model: Model) -> ModelDepth:
    """Return the layer counts and loads of ``model``.

    Loads are in units of one decoder layer. For a layer pattern, the unit is the mean layer.
    """
    loss = loss_load(model)
    return ModelDepth(model.layers, model.mtp_layers, 1 + loss, loss, layer_loads(model))


def find_split(problem: Problem, pp: int, vpp: int) -> PipelineSplit | None:
    """Return the split of the layers into ``pp`` x ``vpp`` chunks; None if no split is valid."""
    model, pins = problem.model, SplitPins.from_pins(problem.pins)
    alike = not model.pattern and not model.mtp_layers and pins.is_unrestricted
    if alike and model.layers % (pp * vpp) == 0:
        # An even split needs no loads, and so neither the vocabulary nor the size of the experts,
        # which are often unknown to parc lint.
        return _find_split_cached(ModelDepth(model.layers, 0, 1, 0), pp, vpp, pins)
    return _find_split_cached(model_depth(model), pp, vpp, pins)


@lru_cache(maxsize=65_536)
def _find_split_cached(
    depth: ModelDepth, pp: int, vpp: int, pins: SplitPins
) -> PipelineSplit | None:
    """Return the result of ``find_split``.

    The result is cached, because thousands of candidates share a small number of splits.
    """
    if pp == 1 and vpp > 1:
        return None
    if pins.text is not None:
        return (
            None if pins.first or pins.last else _split_of_layout_string(depth, pp, vpp, pins.text)
        )
    if pp == 1:
        # Megatron counts the embedding and the loss only to subtract them again from the one stage,
        # and accepts one pinned end if it is the whole model.
        whole = {pins.first, pins.last} <= {None, depth.layers} and not (pins.first and pins.last)
        return _split_without_pipeline(depth) if whole else None
    if pins.first or pins.last:
        return None if pins.embedding or pins.loss else _split_with_given_ends(depth, pp, vpp, pins)
    if pins.embedding or pins.loss:
        return _split_with_counted_ends(depth, pp, vpp, pins)
    return _choose_simplest_split(depth, pp, vpp, pins)


def _choose_simplest_split(
    depth: ModelDepth, pp: int, vpp: int, pins: SplitPins
) -> PipelineSplit | None:
    """Return the simplest split with balanced loads; None if there is no balanced split.

    The kinds of splits are, from simple to complex: an even split, a split that a few flags set,
    and a layout string.
    """
    if depth.loads:
        stages = balance_pattern(depth.loads, pp * vpp, depth.loss_load)
        return (
            None
            if stages is None
            else _split_from_stages(stages, pp, vpp, format_layout_string(stages))
        )
    if depth.mtp_layers * pp <= MOST_MTP_SHARE * depth.layers or depth.mtp_layers == 0:
        if depth.layers % (pp * vpp) == 0:
            return _even_split(depth, pp, vpp)
        # Counting flags keep all middle chunks equal, and the command line short.
        if (counted := _split_with_counted_ends(depth, pp, vpp, pins)) is not None:
            return counted
        if (uneven := _split_with_smaller_ends(depth, pp, vpp)) is not None:
            return uneven
    # Limits the loads for small models with a large vocabulary: the loss can be many layers.
    most = depth.layers // 4
    ends = MtpAndLossLoads(
        depth.mtp_layers, min(depth.mtp_load, most + 1), min(depth.loss_load, most)
    )
    stages = balance_stages(depth.layers, pp, vpp, ends)
    return (
        None
        if stages is None
        else _split_from_stages(stages, pp, vpp, format_layout_string(stages))
    )


def _split_without_pipeline(depth: ModelDepth) -> PipelineSplit:
    """Return the split for one pipeline rank: a single chunk with all layers."""
    return PipelineSplit(
        "even", False, False, "", ((ModelChunk(0, depth.layers, True, depth.mtp_layers, True),),)
    )


def _even_split(depth: ModelDepth, pp: int, vpp: int) -> PipelineSplit:
    """Return the split into chunks with the same number of layers."""
    counts = [depth.layers // (pp * vpp)] * (pp * vpp)
    return PipelineSplit("even", False, False, "", _chunks_by_rank(depth, counts, pp))


def split_with_counts(
    problem: Problem, split: PipelineSplit, counts: tuple[int, ...]
) -> PipelineSplit | None:
    """Return ``split`` with ``counts[c]`` layers in chunk c, in the simplest form.

    The result is None if the spec sets a part of the split, or if Megatron rejects this one.
    """
    if SplitPins.from_pins(problem.pins) != NO_PINS:
        return None
    pp, vpp = len(split.chunks), len(split.chunks[0])
    chunks = [split.chunks[k % pp][k // pp] for k in range(pp * vpp)]
    stages = tuple(
        Stage(chunk.embedding, count, chunk.mtp_layers, chunk.loss)
        for chunk, count in zip(chunks, counts, strict=True)
    )
    depth = model_depth(problem.model)
    wanted = _split_from_stages(stages, pp, vpp, format_layout_string(stages))
    if not depth.loads:
        for simple in _splits_set_by_flags(depth, pp, vpp, counts):
            if simple is not None and simple.chunks == wanted.chunks:
                return simple
    if any(stage.layers + stage.mtp_layers + stage.loss == 0 for stage in stages):
        return None
    if depth.mtp_layers:
        try:
            parse_layout_string(wanted.text)
        except LayoutStringError:
            # A layer would follow the MTP layers.
            return None
    return wanted if find_layout_string_fault(depth, stages, pp, vpp) is None else None


def _splits_set_by_flags(
    depth: ModelDepth, pp: int, vpp: int, counts: tuple[int, ...]
) -> Iterator[PipelineSplit | None]:
    """Yield the splits that may have ``counts`` layers per chunk and need no layout string."""
    if depth.layers % (pp * vpp) == 0:
        yield _even_split(depth, pp, vpp)
    for embedding, loss in COUNTED_ENDS:
        pins = SplitPins(None, None, None, embedding, loss)
        yield _split_with_counted_ends(depth, pp, vpp, pins)
    ranks = [sum(counts[rank::pp]) for rank in range(pp)]
    # With two ranks, there is no middle rank.
    yield _first_last_split(depth, (pp, vpp), (ranks[0], ranks[1] if pp > 2 else 0, ranks[-1]))


def _split_with_counted_ends(
    depth: ModelDepth, pp: int, vpp: int, pins: SplitPins
) -> PipelineSplit | None:
    """Return an even split in which the embedding, the loss or both count as one layer each.

    None if there is no such split.
    """
    for embedding, loss in COUNTED_ENDS:
        if (pins.embedding, pins.loss) not in product((None, embedding), (None, loss)):
            continue
        total = depth.layers + embedding + loss
        counts = [total // (pp * vpp)] * (pp * vpp)
        counts[0] -= embedding
        counts[-1] -= loss
        if total % (pp * vpp) == 0 and min(counts) >= 0:
            return PipelineSplit("counted", embedding, loss, "", _chunks_by_rank(depth, counts, pp))
    return None


def _split_with_given_ends(
    depth: ModelDepth, pp: int, vpp: int, pins: SplitPins
) -> PipelineSplit | None:
    """Return the split with the spec's layer counts for the first and the last rank.

    The other ranks share the remaining layers evenly. None if the other ranks cannot do so.
    """
    middle = pp - (pins.first is not None) - (pins.last is not None)
    rest = depth.layers - (pins.first or 0) - (pins.last or 0)
    if (middle == 0) != (rest == 0) or rest < 0 or (middle and rest % middle):
        return None
    each = rest // middle if middle else 0
    return _first_last_split(depth, (pp, vpp), (pins.first or each, each, pins.last or each))


def _split_with_smaller_ends(depth: ModelDepth, pp: int, vpp: int) -> PipelineSplit | None:
    """Return a split whose first and last rank have fewer layers than the middle ranks.

    The last rank has the fewest layers. None if no such split exists.
    """
    # Rounded up, so that the end ranks, which also have the embedding and the loss, get fewer
    # layers.
    each = -(-depth.layers // (pp * vpp)) * vpp
    rest = depth.layers - each * (pp - 2)
    if rest < 2 * vpp:
        return None
    last = rest // vpp // 2 * vpp
    return _first_last_split(depth, (pp, vpp), (rest - last, each, last))


def _first_last_split(
    depth: ModelDepth, grid: tuple[int, int], ranks: tuple[int, int, int]
) -> PipelineSplit | None:
    """Return the split in which the pipeline ranks have the layer counts in ``ranks``.

    ``ranks`` is (layers of the first rank, of each middle rank, of the last rank). ``grid`` is (pp,
    vpp). The result is None if vpp does not divide these layer counts.
    """
    pp, vpp = grid
    if any(count % vpp or count < vpp for count in ranks if count or pp > 2):
        return None
    first, each, last = (count // vpp for count in ranks)
    return PipelineSplit(
        "first-last",
        False,
        False,
        "",
        _chunks_by_rank(depth, ([first, *[each] * (pp - 2), last]) * vpp, pp),
    )


def stage_loads(depth: ModelDepth, split: PipelineSplit) -> list[float]:
    """Return the load of each pipeline stage, in units of one decoder layer."""
    # One rank computes all chunks of its stage in a step, so their loads are added.
    return [sum(depth.chunk_load(chunk) for chunk in row) for row in split.chunks]


def layers_of_lighter_end(problem: Problem, layout: Layout, most_load: float) -> int | None:
    """Return the value of ``layout.last_stage_layers`` that balances the stages of ``layout`` best.

    None if the spec restricts the split, or if a stage then still has a load above ``most_load``.
    """
    depth, pins = model_depth(problem.model), SplitPins.from_pins(problem.pins)
    if depth.loads or not pins.is_unrestricted:
        return None
    found = []
    for last in range(layout.vpp, depth.layers // layout.pp, layout.vpp):
        split = _split_with_given_ends(
            depth, layout.pp, layout.vpp, SplitPins(None, None, last, None, None)
        )
        if split is not None:
            found.append((max(stage_loads(depth, split)), -last))
    load, layers = min(found, default=(most_load + 1, 0))
    return -layers if load <= most_load else None


def _split_of_layout_string(
    depth: ModelDepth, pp: int, vpp: int, text: str
) -> PipelineSplit | None:
    """Return the split of the user's layout string ``text``.

    None if the string is invalid, or does not fit the model, ``pp`` and ``vpp``.
    """
    try:
        stages = parse_layout_string(text)
    except LayoutStringError:
        return None
    if find_layout_string_fault(depth, stages, pp, vpp) is not None:
        return None
    return _split_from_stages(stages, pp, vpp, text)


def find_layout_string_fault(
    depth: ModelDepth, stages: tuple[Stage, ...], pp: int, vpp: int
) -> str | None:
    """Return why Megatron's ``validate_layer_layout`` rejects ``stages``.

    None if Megatron accepts the stages.
    """
    if len(stages) != pp * vpp:
        return f"the layout has {len(stages)} stages, pp={pp} x vpp={vpp} requires {pp * vpp}"
    layers, mtp = sum(stage.layers for stage in stages), [stage.mtp_layers for stage in stages]
    if layers != depth.layers:
        return f"the layout has {layers} decoder layers, the model has {depth.layers}"
    if sum(mtp) != depth.mtp_layers:
        return f"the layout has {sum(mtp)} MTP layers, the model has {depth.mtp_layers}"
    with_mtp = [k for k, have in enumerate(mtp) if have]
    if len(with_mtp) > 1:
        return "all MTP layers must be in one stage"
    # Stage k is on rank k % pp.
    if with_mtp and pp > 1 and with_mtp[0] % pp == 0:
        return "MTP layers must not be on pipeline rank 0"
    if with_mtp and with_mtp[0] // pp != vpp - 1:
        return "MTP layers must be in the last chunk of their rank"
    return None


def _split_from_stages(stages: tuple[Stage, ...], pp: int, vpp: int, text: str) -> PipelineSplit:
    """Return the split into ``stages``: stage k is chunk k // pp of pipeline rank k % pp.

    ``text`` is the layout string of the stages, or "" if the split needs no layout string.
    """
    first, rows = 0, [[] for _ in range(pp)]  # type: tuple[int, list[list[ModelChunk]]]
    for k, stage in enumerate(stages):
        rows[k % pp].append(
            ModelChunk(first, stage.layers, stage.embedding, stage.mtp_layers, stage.loss)
        )
        first += stage.layers
    return PipelineSplit("string", False, False, text, tuple(tuple(row) for row in rows))


def _chunks_by_rank(
    depth: ModelDepth, counts: list[int], pp: int
) -> tuple[tuple[ModelChunk, ...], ...]:
    """Return the model chunks of each pipeline rank.

    ``counts`` contains the number of decoder layers of each chunk, in model order. The last chunk
    also has the MTP layers and the loss.
    """
    last = len(counts) - 1
    stages = tuple(
        Stage(k == 0, count, depth.mtp_layers if k == last else 0, k == last)
        for k, count in enumerate(counts)
    )
    return _split_from_stages(stages, pp, len(counts) // pp, "").chunks
