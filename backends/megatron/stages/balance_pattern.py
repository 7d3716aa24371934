"""Stages of a model whose layers weigh differently: cut where equal shares of the work end.

A cut stands behind the layer whose end is nearest to its share; every stage has a layer. Ties: the
earlier layer.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from parc.backends.megatron.stages.layout_string import Stage


def balance_pattern(loads: tuple[float, ...], count: int, loss: float) -> tuple[Stage, ...] | None:
    """``count`` stages in the order of the model; None where one would stay without layers.

    Args:
        loads: of every layer.
        count: number of stages.
        loss: load that stands behind the last layer.
    """
    if count > len(loads):
        return None
    ends = list(accumulate(loads, initial=0.0))
    share = (ends[-1] + loss) / count
    cuts = [0]
    for k in range(1, count):
        legal = range(cuts[-1] + 1, len(loads) - (count - k) + 1)
        cuts.append(min(legal, key=lambda n, k=k: (abs(ends[n] - k * share), n)))  # type: ignore[misc]
    cuts.append(len(loads))
    last = count - 1
    return tuple(Stage(k == 0, b - a, 0, k == last) for k, (a, b) in enumerate(pairwise(cuts)))
