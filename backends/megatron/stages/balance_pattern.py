"""Balanced stages for models whose layers differ in load.

Stage k of n ends after the layer at which the cumulative load is closest to k / n of the total; on
a tie, after the earlier layer. Every stage has at least one layer.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from parc.backends.megatron.stages.layout_string import Stage


def balance_pattern(loads: tuple[float, ...], count: int, loss: float) -> tuple[Stage, ...] | None:
    """Return ``count`` stages with balanced loads, in model order.

    The result is None if there are fewer layers than stages.

    Args:
        loads: load per layer.
        count: number of stages.
        loss: load of the loss, which follows the last layer.
    """
    if count > len(loads):
        return None
    ends = list(accumulate(loads, initial=0.0))
    share = (ends[-1] + loss) / count
    cuts = [0]
    for k in range(1, count):
        # The upper end leaves one layer for each later stage.
        ends_of_stage = range(cuts[-1] + 1, len(loads) - (count - k) + 1)
        cuts.append(min(ends_of_stage, key=lambda n, k=k: (abs(ends[n] - k * share), n)))  # type: ignore[misc]
    cuts.append(len(loads))
    last = count - 1
    return tuple(Stage(k == 0, b - a, 0, k == last) for k, (a, b) in enumerate(pairwise(cuts)))
