"""The most even pipeline layout: which stage gets how many layers, when nothing simpler fits.

Loads are counted in half layers, so that the embedding can weigh half a layer. The longest stage
is made as short as can be; then layers are taken from the most loaded pipeline rank until the
count is right. Ties: the later chunk loses a layer last, the earlier rank first.
"""

from __future__ import annotations

from dataclasses import dataclass

from parc.backends.megatron.stages.layout_string import Stage

HALF = 2
"""Loads of one decoder layer."""
EMBEDDING_LOAD = 1


@dataclass(frozen=True, slots=True)
class Ends:
    """What stands after the decoder layers, in layers of load."""

    mtp_layers: int
    mtp_load: int
    loss_load: int


def balance(layers: int, pp: int, vpp: int, ends: Ends) -> tuple[Stage, ...] | None:
    """Stages in the order of the string; None where a stage would stay without work.

    MTP layers go to the last stage, or to the one before it with the loss alone behind them,
    whichever keeps the longest stage shorter; never to pipeline rank 0, always to a rank's
    last chunk (``validate_layer_layout``).
    """
    count = pp * vpp
    options = [_tail(count, ends, split=False)]
    if ends.mtp_layers and pp >= 3:
        options.append(_tail(count, ends, split=True))
    peak, tail = min(((_peak(layers, tail), tail) for tail in options), key=lambda pair: pair[0])
    counts = _counts(layers, pp, peak, tail)
    if any(have == 0 and extra == 0 for have, extra in zip(counts, tail, strict=True)):
        return None
    mtp_stage = count - 2 if len(options) > 1 and tail is options[1] else count - 1
    return tuple(
        Stage(k == 0, have, ends.mtp_layers if k == mtp_stage else 0, k == count - 1)
        for k, have in enumerate(counts)
    )


BLOCKED = 1 << 20
"""Load of a stage that must not get layers: it stands behind the MTP layers."""


def _tail(count: int, ends: Ends, *, split: bool) -> list[int]:
    """Extra load of each stage, in half layers."""
    tail = [0] * count
    tail[0] = EMBEDDING_LOAD if count > 1 else 0
    mtp = ends.mtp_layers * ends.mtp_load * HALF
    if split:
        tail[-2] += mtp
        tail[-1] = BLOCKED + ends.loss_load * HALF
    else:
        tail[-1] += mtp + ends.loss_load * HALF
    return tail


def _room(peak: int, extra: int) -> int:
    """Layers that a stage can take when the longest one holds ``peak`` layers."""
    # The embedding costs memory and hardly any time: it may stand beside a full stage.
    beside = 0 if extra == EMBEDDING_LOAD else extra
    return max(0, (peak * HALF - beside) // HALF)


def _peak(layers: int, tail: list[int]) -> int:
    """Fewest layers of load that the longest stage can have."""
    peak = -(-layers // len(tail))
    while sum(_room(peak, extra) for extra in tail) < layers:
        peak += 1
    return max([peak, *(extra % BLOCKED // HALF for extra in tail)])


def _counts(layers: int, pp: int, peak: int, tail: list[int]) -> list[int]:
    """Layers of each stage, ``layers`` in all; only a stage with other work may get none."""
    counts = [_room(peak, extra) for extra in tail]
    loads = [
        sum(HALF * counts[k] + tail[k] % BLOCKED for k in range(rank, len(tail), pp))
        for rank in range(pp)
    ]
    for _ in range(sum(counts) - layers):
        spare = [k for k, count in enumerate(counts) if count > (tail[k] <= EMBEDDING_LOAD)]
        k = max(
            spare or [k for k, count in enumerate(counts) if count],
            key=lambda k: (loads[k % pp], HALF * counts[k] + tail[k], -k),
        )
        counts[k] -= 1
        loads[k % pp] -= HALF
    return counts
