"""Routed layers of a serving step: which experts are read, and how uneven their ranks are."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

from parc.compiler.cost.serving.constants import WEIGHT_BYTES
from parc.compiler.cost.serving.deployment import Deployment

ROUTED_BYTES = 8
"""Bytes a routed row and hidden unit of its way to an expert and back: gather, cast, scatter."""
PAD_ROWS = 64
"""Rows of a tile of 128 that an expert leaves empty, on average."""
GROUPED_SHARE = 0.8
"""Grouped GEMMs over single ones of the same format: short tiles of each expert. Fitted."""


def routed_seconds(deployment: Deployment, tokens: float) -> float:
    """Shared and routed experts of one layer; ``tokens``: those of one rank's share of a step.

    Weights read: 1 - (1 - k/E)^n of the experts of the rank, n the tokens of the expert group.
    """
    experts, part = deployment.model.experts, deployment.shard
    if experts is None:
        return 0.0
    nbytes = WEIGHT_BYTES[deployment.setup.weights]
    group = tokens * deployment.layout.pcp * deployment.layout.dp
    share = experts.top_k / experts.count
    ranks = deployment.layout.ep
    kept: float = 1 - (1 - share) ** group
    touched = part.experts * kept
    touched = min(touched * _imbalance(touched, ranks, kept), part.experts)
    read = touched * part.expert * nbytes / deployment.weight_rate(nbytes)
    rows = group * experts.top_k / ranks
    rows *= _imbalance(rows, ranks)
    padded = rows + PAD_ROWS * touched
    compute = 2 * padded * part.expert / (deployment.gemm_rate(nbytes) * GROUPED_SHARE)
    moved = ROUTED_BYTES * rows * deployment.model.hidden / deployment.memory_rate
    shared = deployment.gemm_seconds(part.shared, tokens, nbytes) if part.shared else 0.0
    return max(read, compute) + moved + shared


def _imbalance(mean: float, ranks: int, kept: float = 0.0) -> float:
    """The busiest of ``ranks`` ranks over the mean, tokens choosing at random; never over 2.

    Counts are taken for normal with the variance mean x (1 - kept): Poisson, less where ``kept``
    of all that can be chosen is; their expected maximum is Blom's (1958).
    """
    if ranks == 1 or mean <= 0:
        return 1.0
    return min(1 + _expected_maximum(ranks) * math.sqrt((1 - kept) / mean), 2.0)


@cache
def _expected_maximum(draws: int) -> float:
    """Mean of the largest of ``draws`` standard normals."""
    return float(NormalDist().inv_cdf((draws - 0.375) / (draws + 0.25)))
