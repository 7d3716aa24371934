"""Which chunk holds which layers: the pins' way, else the simplest way that is balanced.

A pattern has its stages in itself; its split is a ``string`` wherever nothing else is pinned.
Forms, simplest first: ``even`` says nothing; ``counted`` says that embedding or loss count as a
layer; ``first-last`` gives the first and last rank their own count; ``string`` spells a layout.
Source: megatron/core/transformer/transformer_block.py, ``get_num_layers_to_build``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from parc.backends.megatron.stages.balance import Ends, balance
from parc.backends.megatron.stages.balance_pattern import balance_pattern
from parc.backends.megatron.stages.layer_loads import layer_loads, loss_load
from parc.backends.megatron.stages.layout_string import LayoutStringError, Stage, parse, spell
from parc.compiler.ir import Chunk, Model, Pins, Problem, Split

MOST_MTP_SHARE = 0.1
"""An even split keeps MTP on the last rank while it is at most this share of a rank's layers."""


@dataclass(frozen=True, slots=True)
class Depth:
    """What is to be split: decoder layers and what stands behind them, in layers of load."""

    layers: int
    mtp_layers: int
    mtp_load: int
    loss_load: int
    loads: tuple[float, ...] = ()
    """Of every layer of a pattern, their mean 1; empty where layers are alike."""

    def load(self, chunk: Chunk) -> float:
        """Layers of work that ``chunk`` holds."""
        first, count = chunk.first_layer, chunk.layers
        own = sum(self.loads[first : first + count]) if self.loads else count
        return own + chunk.mtp_layers * self.mtp_load + chunk.loss * self.loss_load


@dataclass(frozen=True, slots=True)
class SplitPins:
    """The part of the user's pins that decides the split."""

    text: str | None
    first: int | None
    last: int | None
    embedding: bool | None
    loss: bool | None

    @classmethod
    def of(cls, pins: Pins) -> SplitPins:
        """Take them out of all pins."""
        return cls(
            pins.pipeline_layout,
            pins.first_stage_layers,
            pins.last_stage_layers,
            pins.count_embedding,
            pins.count_loss,
        )

    @property
    def free(self) -> bool:
        """Nothing is asked for."""
        return self.text is None and not (self.first or self.last or self.embedding or self.loss)


def depth(model: Model) -> Depth:
    """Loads of ``model`` in units of one of its decoder layers, of a mean one in a pattern."""
    loss = loss_load(model)
    return Depth(model.layers, model.mtp_layers, 1 + loss, loss, layer_loads(model))


def find_split(problem: Problem, pp: int, vpp: int) -> Split | None:
    """The split of ``pp`` ranks with ``vpp`` chunks each; None where there is none."""
    return _find(depth(problem.model), pp, vpp, SplitPins.of(problem.pins))


@lru_cache(maxsize=65_536)
def _find(deep: Depth, pp: int, vpp: int, pins: SplitPins) -> Split | None:
    """``find_split`` by value, so that thousands of candidates share the work."""
    if pp == 1 and vpp > 1:
        return None
    if pins.text is not None:
        return None if pins.first or pins.last else _pinned_string(deep, pp, vpp, pins.text)
    if pp == 1:
        return _single(deep) if pins.free else None
    if pins.first or pins.last:
        return None if pins.embedding or pins.loss else _pinned_ends(deep, pp, vpp, pins)
    if pins.embedding or pins.loss:
        return _counted(deep, pp, vpp, pins)
    return _chosen(deep, pp, vpp, pins)


def _chosen(deep: Depth, pp: int, vpp: int, pins: SplitPins) -> Split | None:
    """The simplest balanced form."""
    if deep.loads:
        stages = balance_pattern(deep.loads, pp * vpp, deep.loss_load)
        return None if stages is None else _from_stages(stages, pp, vpp, spell(stages))
    if deep.mtp_layers * pp <= MOST_MTP_SHARE * deep.layers or deep.mtp_layers == 0:
        if deep.layers % (pp * vpp) == 0:
            return _even(deep, pp, vpp)
        if (counted := _counted(deep, pp, vpp, pins)) is not None:
            return counted
        if (uneven := _free_ends(deep, pp, vpp)) is not None:
            return uneven
    most = deep.layers // 4  # of a small model with a large vocabulary
    ends = Ends(deep.mtp_layers, min(deep.mtp_load, most + 1), min(deep.loss_load, most))
    stages = balance(deep.layers, pp, vpp, ends)
    return None if stages is None else _from_stages(stages, pp, vpp, spell(stages))


def _single(deep: Depth) -> Split:
    """No pipeline."""
    return Split("even", False, False, "", ((Chunk(0, deep.layers, True, deep.mtp_layers, True),),))


def _even(deep: Depth, pp: int, vpp: int) -> Split:
    """Every chunk the same."""
    counts = [deep.layers // (pp * vpp)] * (pp * vpp)
    return Split("even", False, False, "", _chunks(deep, counts, pp))


def _counted(deep: Depth, pp: int, vpp: int, pins: SplitPins) -> Split | None:
    """Loss, embedding or both count as a layer; one flag is simpler than two."""
    for embedding, loss in ((False, True), (True, False), (True, True)):
        if (pins.embedding, pins.loss) not in product((None, embedding), (None, loss)):
            continue
        total = deep.layers + embedding + loss
        counts = [total // (pp * vpp)] * (pp * vpp)
        counts[0] -= embedding
        counts[-1] -= loss
        if total % (pp * vpp) == 0 and min(counts) >= 0:
            return Split("counted", embedding, loss, "", _chunks(deep, counts, pp))
    return None


def _pinned_ends(deep: Depth, pp: int, vpp: int, pins: SplitPins) -> Split | None:
    """First or last rank as pinned; the others share the rest evenly."""
    middle = pp - (pins.first is not None) - (pins.last is not None)
    rest = deep.layers - (pins.first or 0) - (pins.last or 0)
    if (middle == 0) != (rest == 0) or rest < 0 or (middle and rest % middle):
        return None
    each = rest // middle if middle else 0
    return _ends(deep, (pp, vpp), (pins.first or each, each, pins.last or each))


def _free_ends(deep: Depth, pp: int, vpp: int) -> Split | None:
    """First and last rank get less than the others, the last the least."""
    each = -(-deep.layers // (pp * vpp)) * vpp
    rest = deep.layers - each * (pp - 2)
    if rest % vpp or rest < 2 * vpp:
        return None
    last = rest // vpp // 2 * vpp
    return _ends(deep, (pp, vpp), (rest - last, each, last))


def _ends(deep: Depth, grid: tuple[int, int], ranks: tuple[int, int, int]) -> Split | None:
    """Split from the layers of the first, each middle and the last rank; ``grid`` is (pp, vpp)."""
    pp, vpp = grid
    if any(count % vpp or count < vpp for count in ranks if count or pp > 2):
        return None
    first, each, last = (count // vpp for count in ranks)
    return Split(
        "first-last", False, False, "", _chunks(deep, ([first, *[each] * (pp - 2), last]) * vpp, pp)
    )


def _pinned_string(deep: Depth, pp: int, vpp: int, text: str) -> Split | None:
    """The user's layout, if it is one for this grid."""
    try:
        stages = parse(text)
    except LayoutStringError:
        return None
    if layout_fault(deep, stages, pp, vpp) is not None:
        return None
    return _from_stages(stages, pp, vpp, text)


def layout_fault(deep: Depth, stages: tuple[Stage, ...], pp: int, vpp: int) -> str | None:
    """What Megatron's ``validate_layer_layout`` would refuse, as one sentence; None if nothing."""
    if len(stages) != pp * vpp:
        return f"the layout has {len(stages)} stages, pp={pp} x vpp={vpp} needs {pp * vpp}"
    layers, mtp = sum(stage.layers for stage in stages), [stage.mtp_layers for stage in stages]
    if layers != deep.layers:
        return f"the layout places {layers} decoder layers, the model has {deep.layers}"
    if sum(mtp) != deep.mtp_layers:
        return f"the layout places {sum(mtp)} MTP layers, the model trains {deep.mtp_layers}"
    where = [k for k, have in enumerate(mtp) if have]
    if len(where) > 1:
        return "all MTP layers must stand in one stage"
    if where and pp > 1 and where[0] % pp == 0:
        return "MTP layers may not stand on pipeline rank 0"
    if where and where[0] // pp != vpp - 1:
        return "MTP layers must stand in the last chunk of their rank"
    return None


def _from_stages(stages: tuple[Stage, ...], pp: int, vpp: int, text: str) -> Split:
    """Chunks of a layout string: stage k is chunk k // pp of rank k % pp."""
    first, rows = 0, [[] for _ in range(pp)]  # type: tuple[int, list[list[Chunk]]]
    for k, stage in enumerate(stages):
        rows[k % pp].append(
            Chunk(first, stage.layers, stage.embedding, stage.mtp_layers, stage.loss)
        )
        first += stage.layers
    return Split("string", False, False, text, tuple(tuple(row) for row in rows))


def _chunks(deep: Depth, counts: list[int], pp: int) -> tuple[tuple[Chunk, ...], ...]:
    """Chunks of ``counts`` layers, in the order of the model; MTP and loss stand in the last."""
    last = len(counts) - 1
    stages = tuple(
        Stage(k == 0, count, deep.mtp_layers if k == last else 0, k == last)
        for k, count in enumerate(counts)
    )
    return _from_stages(stages, pp, len(counts) // pp, "").chunks
