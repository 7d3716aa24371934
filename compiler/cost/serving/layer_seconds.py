"""Time of special layers in a serving step: context parallelism, experts, recurrence.

Decode context parallelism (dcp): each of dcp ranks stores every dcp-th token of a request. The
queries of the group are gathered so that each rank attends with all of their heads to its own
tokens; the partial outputs are scattered back, weighted by their log-sum-exp, which is gathered too
(vLLM, v1/attention/ops/dcp.py, ``ag_rs``). FLOPs do not change; cache and cache reads shrink by
dcp.

Prefill context parallelism (pcp): the tokens of a step, including those of decoding requests, are
distributed over pcp ranks (v1/worker/gpu/pcp_manager.py). The keys and values of all tokens are
gathered on each rank because each stores a whole cache.

No published measurement shows the cost of either, so the bytes over links are not fitted.

Routed layers: the model covers which experts are read, and how uneven the load of their ranks is.

Linear attention and Mamba, without their projections: a decoding request reads and writes its state
in each such layer, independent of its context. Prompts run in chunks as in training
(``cost/kernels/recurrence.py``), at the rates of serving kernels. docs/cost-model/serving.md lists
the engine measurements against which this was checked.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

from parc.compiler.cost.counts.cache import recurrent_state_bytes
from parc.compiler.cost.kernels.recurrence import recurrence_of_layer
from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.shard import WEIGHT_BYTES
from parc.compiler.ir import Model

ELEMENT_BYTES = 2
"""Bytes per element of queries, keys, values and outputs."""
LSE_BYTES = 4
"""Bytes per log-sum-exp."""


def context_parallel_seconds(deployment: Deployment, decode: float, prefill: float) -> float:
    """Return the time in seconds of the context-parallel collectives (dcp and pcp) of one layer.

    ``decode`` is the number of decoding tokens and ``prefill`` the number of prompt tokens that one
    rank processes in a step.
    """
    layout = deployment.layout
    seconds = 0.0
    if layout.dcp > 1:
        # Grouped queries are exchanged for the whole step, latent ones only for decoding tokens.
        latent = deployment.model.attention.latent is not None
        seconds += _decode_context_exchange_seconds(
            deployment, decode if latent else decode + prefill
        )
    if layout.pcp > 1:
        token_bytes = cached_elements_per_token(deployment.model, layout.tp) * ELEMENT_BYTES
        # Every pcp rank stores a whole cache, so that it needs the keys and values of all ranks.
        gathered = (decode + prefill) * layout.pcp * token_bytes
        seconds += deployment.links.gather_seconds(gathered, layout.pcp, layout.tp)
    return seconds


def _decode_context_exchange_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the time in seconds of one layer's collectives of decode context parallelism (dcp).

    The ranks gather queries and log-sum-exps and scatter partial outputs. ``tokens`` is the number
    of tokens per rank.
    """
    model, layout, links = deployment.model, deployment.layout, deployment.links
    query, output = exchanged_elements_per_head(model)
    rows = tokens * model.attention.heads / layout.tp * layout.dcp
    sizes = (rows * query * ELEMENT_BYTES, rows * LSE_BYTES, rows * output * ELEMENT_BYTES)
    return sum(links.gather_seconds(nbytes, layout.dcp) for nbytes in sizes)


def exchanged_elements_per_head(model: Model) -> tuple[int, int]:
    """Return (elements of a query, elements of an output) that dcp ranks exchange per head.

    dcp is decode context parallelism. In latent attention, the ranks exchange absorbed queries and
    outputs, which have the width of the latent vector.
    """
    latent = model.attention.latent
    if latent is None:
        return model.attention.head_dim, model.attention.head_dim
    return latent.kv_lora_rank + latent.qk_rope_dim, latent.kv_lora_rank


def cached_elements_per_token(model: Model, tp: int) -> float:
    """Return the elements that one attention layer caches per token on one of ``tp`` ranks."""
    latent, attention = model.attention.latent, model.attention
    if latent is not None:
        return latent.kv_lora_rank + latent.qk_rope_dim
    return max(attention.kv_heads / tp, 1.0) * attention.cached_width


ROUTED_BYTES = 8
"""Bytes moved per routed row and hidden unit by the kernels that gather, cast and scatter rows for
the experts."""
TILE_ROWS = (16, 128)
"""Smallest and largest number of rows of a tile of a grouped GEMM. Kernels choose a power of two
close to the rows of an expert (vLLM, fused_moe.py, get_default_config)."""
GROUPED_SHARE = 0.8
"""Rate of grouped GEMMs divided by that of single GEMMs of the same number format. It is below 1
because the tiles of an expert are often not full. Fitted."""
WORST_IMBALANCE = 2.0
"""Upper limit of the load of the busiest rank, divided by the mean load."""


def expert_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the time in seconds of the shared and routed experts of one layer on one rank.

    ``tokens`` is the number of tokens that one rank processes in a step. The rank reads only
    experts that receive a token: with n tokens in the expert-parallel group, this is the fraction 1
    - (1 - top_k / experts)^n of its experts.
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
    # The step waits for the rank that reads the most experts.
    touched = min(touched * _load_imbalance(touched, ranks, used), part.experts)
    bytes_per_second, flops_per_second = deployment.gemm_rates(nbytes)
    read = touched * part.expert * nbytes / bytes_per_second
    rows = group * experts.top_k / ranks
    rows *= _load_imbalance(rows, ranks)
    padded = rows + _empty_rows(rows / touched if touched else 0.0) * touched
    compute = 2 * padded * part.expert / (flops_per_second * GROUPED_SHARE)
    width = deployment.model.expert_input_width
    moved = ROUTED_BYTES * rows * width / deployment.memory_bytes_per_second
    shared = deployment.gemm_seconds(part.shared, tokens, nbytes) if part.shared else 0.0
    return max(read, compute) + moved + shared


def _empty_rows(rows: float) -> float:
    """Return the mean number of empty rows in the last tile of an expert with ``rows`` rows."""
    smallest, largest = TILE_ROWS
    # Half of the last tile is empty on average. Powers of two are smoothed, because the rows of
    # experts differ.
    return min(max(rows, smallest), largest) / 2


def _load_imbalance(mean: float, ranks: int, used: float = 0.0) -> float:
    """Return the load of the busiest of ``ranks`` ranks, divided by the mean load.

    Routing is assumed to be random. The load of a rank is a number of experts or of rows, and
    ``mean`` is its expected value. ``used`` is the fraction of all experts that are chosen (0 if
    the load is a number of rows); a large fraction reduces the variance.
    """
    # Counts are assumed normal with variance mean x (1 - used); a Poisson count has used = 0. The
    # expected maximum is approximated as in Blom (1958).
    if ranks == 1 or mean <= 0:
        return 1.0
    return min(1 + _expected_maximum(ranks) * math.sqrt((1 - used) / mean), WORST_IMBALANCE)


@cache
def _expected_maximum(draws: int) -> float:
    """Return the expected maximum of ``draws`` standard normal random numbers."""
    return float(NormalDist().inv_cdf((draws - 0.375) / (draws + 0.25)))


RECURRENT_KERNELS = 6
"""Kernels per layer: norm, input projection (the narrow second one of linear attention runs in
parallel), convolution, recurrence, gated norm, output projection."""


def recurrent_layer_seconds(deployment: Deployment, decode: float, prefill: float) -> float:
    """Return the time in seconds of one recurrent layer in a step, without its projections.

    ``decode`` is the number of decoding requests and ``prefill`` the number of prompt tokens.
    """
    model, layout, rate = deployment.model, deployment.layout, deployment.memory_bytes_per_second
    state = recurrent_state_bytes(model, deployment.engine, layout.tp)
    # The state is read and written once per token.
    seconds = 2 * decode * state / rate
    part = next(filter(None, (recurrence_of_layer(model, kind) for kind in model.kinds)), None)
    if part is None or not prefill:
        return seconds
    tokens = prefill / layout.tp
    moved = part.scanned_bytes + part.streamed_bytes
    return seconds + tokens * (part.flops / deployment.attention_flops_per_second + moved / rate)
