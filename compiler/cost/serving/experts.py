"""Routed layers of a serving step: the experts that are read, and the imbalance of their ranks."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

from parc.compiler.cost.serving.constants import WEIGHT_BYTES
from parc.compiler.cost.serving.deployment import Deployment

ROUTED_BYTES = 8
"""Bytes per routed row and hidden unit on the way to an expert and back: gather, cast, scatter."""
PAD_ROWS = 64
"""Mean number of empty rows per expert in tiles of 128 rows."""
GROUPED_SHARE = 0.8
"""Rate of grouped GEMMs over single ones of the same format, because each expert has short tiles.
Fitted."""
WORST_IMBALANCE = 2.0
"""Upper limit of the busiest rank over the mean."""


def routed_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the seconds of shared and routed experts of one layer.

    Of the experts on a rank, the fraction 1 - (1 - top_k / experts)^n is read, with n the tokens of
    the expert group. ``tokens`` are the tokens in one rank's share of a step.
    """
    experts, part = deployment.model.experts, deployment.shard
    if experts is None:
        return 0.0
    nbytes = WEIGHT_BYTES[deployment.setup.weights]
    group = tokens * deployment.layout.pcp * deployment.layout.dp
    share = experts.top_k / experts.count
    ranks = deployment.layout.ep
    used: float = 1 - (1 - share) ** group
    touched = part.experts * used
    touched = min(touched * _imbalance(touched, ranks, used), part.experts)
    read = touched * part.expert * nbytes / deployment.weight_rate(nbytes)
    rows = group * experts.top_k / ranks
    rows *= _imbalance(rows, ranks)
    padded = rows + PAD_ROWS * touched
    compute = 2 * padded * part.expert / (deployment.gemm_rate(nbytes) * GROUPED_SHARE)
    moved = ROUTED_BYTES * rows * deployment.model.hidden / deployment.memory_rate
    shared = deployment.gemm_seconds(part.shared, tokens, nbytes) if part.shared else 0.0
    return max(read, compute) + moved + shared


def _imbalance(mean: float, ranks: int, used: float = 0.0) -> float:
    """Return the load of the busiest of ``ranks`` ranks over the mean for random routing.

    Counts are assumed normal with variance mean x (1 - used): Poisson, or less if the fraction
    ``used`` of all candidates is chosen. Their expected maximum is Blom's (1958).
    """
    if ranks == 1 or mean <= 0:
        return 1.0
    return min(1 + _expected_maximum(ranks) * math.sqrt((1 - used) / mean), WORST_IMBALANCE)


@cache
def _expected_maximum(draws: int) -> float:
    """Return the mean of the largest of ``draws`` standard normal values."""
    return float(NormalDist().inv_cdf((draws - 0.375) / (draws + 0.25)))
