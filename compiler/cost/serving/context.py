"""What context parallelism of a serving engine sends, a layer at a time.

Decode context parallelism (vLLM's dcp): each of dcp ranks holds every dcp-th token of a request.
Queries of the group are gathered, so that each rank attends with all of their heads to its own
tokens, and the partial outputs are scattered back by their log-sum-exp, which is gathered too
(v1/attention/ops/dcp.py, ``ag_rs``). FLOPs stay what they were, cache and reads shrink by dcp.

Prefill context parallelism (pcp): the tokens of a step, decoding requests among them, are dealt out
to pcp ranks (v1/worker/gpu/pcp_manager.py); keys and values of all are gathered on each, for every
rank keeps a whole cache. No published time says what either costs: bytes over links, not fitted.
"""

from __future__ import annotations

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.ir import Model

ELEMENT_BYTES = 2
"""Queries, keys, values and outputs as activations have them."""
LSE_BYTES = 4


def context_seconds(deployment: Deployment, decode: float, prefill: float) -> float:
    """Collectives of one layer; tokens that ``decode`` and ``prefill`` in a rank's share."""
    layout = deployment.layout
    seconds = 0.0
    if layout.dcp > 1:
        # Grouped queries go through it with the whole step, latent ones where they decode.
        latent = deployment.model.attention.latent is not None
        seconds += _decode_seconds(deployment, decode if latent else decode + prefill)
    if layout.pcp > 1:
        kept = kept_width(deployment.model, layout.tp) * ELEMENT_BYTES
        gathered = (decode + prefill) * layout.pcp * kept
        seconds += deployment.links.gather_seconds(gathered, layout.pcp, layout.tp)
    return seconds


def _decode_seconds(deployment: Deployment, tokens: float) -> float:
    model, layout, links = deployment.model, deployment.layout, deployment.links
    query, output = exchanged_widths(model)
    rows = tokens * model.attention.heads / layout.tp * layout.dcp
    sizes = (rows * query * ELEMENT_BYTES, rows * LSE_BYTES, rows * output * ELEMENT_BYTES)
    return sum(links.gather_seconds(nbytes, layout.dcp) for nbytes in sizes)


def exchanged_widths(model: Model) -> tuple[int, int]:
    """(query, output) elements of one head: absorbed ones are as wide as the latent."""
    latent = model.attention.latent
    if latent is None:
        return model.attention.head_dim, model.attention.head_dim
    return latent.kv_lora_rank + latent.qk_rope_dim, latent.kv_lora_rank


def kept_width(model: Model, tp: int) -> float:
    """Elements of one token and layer in the cache of a rank."""
    latent, attention = model.attention.latent, model.attention
    if latent is not None:
        return latent.kv_lora_rank + latent.qk_rope_dim
    return 2 * max(attention.kv_heads / tp, 1.0) * attention.head_dim
