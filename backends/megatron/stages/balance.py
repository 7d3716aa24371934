"""Balanced layers per stage, if no simpler form of split is balanced.

Loads are counted in half layers, so that the embedding can count as half a layer. First, the load
of the most loaded stage is minimized. Then layers are removed from the most loaded pipeline rank
until the layer count is right. Of equally loaded stages, the earlier stage loses a layer.
"""

from __future__ import annotations

from parc.backends.megatron.stages.layout_string import Stage
from parc.compiler.ir.frozen import frozen

HALF = 2
"""Load of one decoder layer, in half layers."""
EMBEDDING_LOAD = 1
"""Load of the embedding, in half layers."""


@frozen
class MtpAndLossLoads:
    """Number of MTP layers, and the loads of an MTP layer and of the loss in decoder layers."""

    mtp_layers: int
    mtp_load: int
    loss_load: int


def balance_stages(
    layers: int, pp: int, vpp: int, ends: MtpAndLossLoads
) -> tuple[Stage, ...] | None:
    """Return the stages with balanced loads; None if a stage would have no work.

    The MTP layers are in the last stage or in the stage before the last, whichever gives the
    smaller maximum load. Megatron requires that MTP layers are in the last chunk of their rank, and
    not on pipeline rank 0 (``validate_layer_layout``).
    """
    count = pp * vpp
    options = [_load_besides_decoder_layers(count, ends, split=False)]
    # With two ranks, the stage before the last is on rank 0, where MTP layers are not allowed.
    if ends.mtp_layers and pp >= 3:
        options.append(_load_besides_decoder_layers(count, ends, split=True))
    peak, tail = min(
        ((_smallest_maximum_load(layers, tail), tail) for tail in options), key=lambda pair: pair[0]
    )
    counts = _layers_per_stage(layers, pp, peak, tail)
    if any(have == 0 and extra == 0 for have, extra in zip(counts, tail, strict=True)):
        return None
    mtp_stage = count - 2 if len(options) > 1 and tail is options[1] else count - 1
    return tuple(
        Stage(k == 0, have, ends.mtp_layers if k == mtp_stage else 0, k == count - 1)
        for k, have in enumerate(counts)
    )


BLOCKED = 1 << 20
"""Load that keeps decoder layers out of a stage, because the stage follows the MTP layers."""


def _load_besides_decoder_layers(count: int, ends: MtpAndLossLoads, *, split: bool) -> list[int]:
    """Return the load of each of ``count`` stages, without decoder layers, in half layers.

    If ``split`` is true, the MTP layers are in the stage before the last; otherwise they are in the
    last stage. The loss is always in the last stage.
    """
    tail = [0] * count
    tail[0] = EMBEDDING_LOAD
    mtp = ends.mtp_layers * ends.mtp_load * HALF
    if split:
        tail[-2] += mtp
        tail[-1] = BLOCKED + ends.loss_load * HALF
    else:
        tail[-1] += mtp + ends.loss_load * HALF
    return tail


def _max_layers_of_stage(peak: int, extra: int) -> int:
    """Return how many decoder layers a stage can have without exceeding the load ``peak``.

    ``peak`` is in units of one layer. ``extra``, in half layers, is the load of everything in the
    stage except its decoder layers.
    """
    # The embedding needs memory but hardly any time, so a full stage may have it as well.
    other = 0 if extra == EMBEDDING_LOAD else extra
    return max(0, (peak * HALF - other) // HALF)


def _smallest_maximum_load(layers: int, tail: list[int]) -> int:
    """Return the smallest possible load of the most loaded stage, in units of one layer."""
    peak = -(-layers // len(tail))
    while sum(_max_layers_of_stage(peak, extra) for extra in tail) < layers:
        peak += 1
    return max([peak, *(extra % BLOCKED // HALF for extra in tail)])


def _layers_per_stage(layers: int, pp: int, peak: int, tail: list[int]) -> list[int]:
    """Return the number of decoder layers of each stage, so that no load exceeds ``peak``.

    ``tail`` is the load of each stage without decoder layers. Only stages with MTP layers or the
    loss may have no decoder layer.
    """
    counts = [_max_layers_of_stage(peak, extra) for extra in tail]
    loads = [
        sum(HALF * counts[k] + tail[k] % BLOCKED for k in range(rank, len(tail), pp))
        for rank in range(pp)
    ]
    for _ in range(sum(counts) - layers):
        # A stage without MTP layers and loss keeps at least one decoder layer.
        spare = [k for k, count in enumerate(counts) if count > (tail[k] <= EMBEDDING_LOAD)]
        k = max(
            spare or [k for k, count in enumerate(counts) if count],
            key=lambda k: (loads[k % pp], HALF * counts[k] + tail[k], -k),
        )
        counts[k] -= 1
        loads[k % pp] -= HALF
    return counts
