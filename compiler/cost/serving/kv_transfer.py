"""Transfer of the KV cache from the prefill pool to the decode pool of a disaggregated service."""

from __future__ import annotations

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.memory import request_cache_bytes
from parc.compiler.ir.serving import Traffic


def transfer_bytes(deployment: Deployment, traffic: Traffic) -> float:
    """Return the bytes of a prompt's KV cache that one rank of the decode pool receives.

    With latent attention, each tensor-parallel rank stores, and receives, the whole latent cache.
    """
    tokens = traffic.input_tokens
    return request_cache_bytes(deployment.model, deployment.layout, deployment.setup, tokens)


def transfer_seconds(deployment: Deployment, traffic: Traffic) -> float:
    """Return the seconds that a rank of the decode pool takes to receive the KV cache of a prompt.

    The result is 0 for engines that are not a decode pool. Each rank receives its own part over the
    network adapter of its GPU, after the prompt has been processed: engines that send the first
    layers earlier are faster. The prefill pool is assumed to send at least at this rate.
    """
    if deployment.setup.pool != "decode":
        return 0.0
    links = deployment.links
    # The two pools have different hosts, so the stride must exceed a host.
    return links.message_seconds(transfer_bytes(deployment, traffic), links.host)
