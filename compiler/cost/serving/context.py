"""Collectives of context parallelism in a serving engine, per layer.

Decode context parallelism (dcp): each of dcp ranks stores every dcp-th token of a request. The
queries of the group are gathered so that each rank attends with all of their heads to its own
tokens; the partial outputs are scattered back, weighted by their log-sum-exp, which is gathered too
(vLLM, v1/attention/ops/dcp.py, ``ag_rs``). FLOPs do not change; cache and cache reads shrink by
dcp.

Prefill context parallelism (pcp): the tokens of a step, including those of decoding requests, are
distributed over pcp ranks (v1/worker/gpu/pcp_manager.py). The keys and values of all tokens are
gathered on each rank because each stores a whole cache.

No published measurement shows the cost of either, so the bytes over links are not fitted.
"""

from __future__ import annotations

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.ir import Model

ELEMENT_BYTES = 2
"""Bytes per element of queries, keys, values and outputs."""
LSE_BYTES = 4
"""Bytes per log-sum-exp."""


def context_seconds(deployment: Deployment, decode: float, prefill: float) -> float:
    """Return the seconds of the collectives of one layer.

    ``decode`` and ``prefill`` are the tokens of each kind in one rank's share of a step.
    """
    layout = deployment.layout
    seconds = 0.0
    if layout.dcp > 1:
        # Grouped queries are exchanged for the whole step, latent ones only for decoding tokens.
        latent = deployment.model.attention.latent is not None
        seconds += _decode_seconds(deployment, decode if latent else decode + prefill)
    if layout.pcp > 1:
        token_bytes = cached_elements(deployment.model, layout.tp) * ELEMENT_BYTES
        gathered = (decode + prefill) * layout.pcp * token_bytes
        seconds += deployment.links.gather_seconds(gathered, layout.pcp, layout.tp)
    return seconds


def _decode_seconds(deployment: Deployment, tokens: float) -> float:
    """Return the seconds of gathering queries and log-sum-exps and of scattering outputs."""
    model, layout, links = deployment.model, deployment.layout, deployment.links
    query, output = exchanged_elements(model)
    rows = tokens * model.attention.heads / layout.tp * layout.dcp
    sizes = (rows * query * ELEMENT_BYTES, rows * LSE_BYTES, rows * output * ELEMENT_BYTES)
    return sum(links.gather_seconds(nbytes, layout.dcp) for nbytes in sizes)


def exchanged_elements(model: Model) -> tuple[int, int]:
    """Return (query, output) elements per head; absorbed ones are as wide as the latent vector."""
    latent = model.attention.latent
    if latent is None:
        return model.attention.head_dim, model.attention.head_dim
    return latent.kv_lora_rank + latent.qk_rope_dim, latent.kv_lora_rank


def cached_elements(model: Model, tp: int) -> float:
    """Return the elements per token and layer in the cache of a rank."""
    latent, attention = model.attention.latent, model.attention
    if latent is not None:
        return latent.kv_lora_rank + latent.qk_rope_dim
    return 2 * max(attention.kv_heads / tp, 1.0) * attention.head_dim
