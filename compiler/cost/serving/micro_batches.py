"""Micro-batches of a pipeline, which the estimates treat like data-parallel ranks.

A pipeline of pp stages computes pp micro-batches at a time. A request stays in its micro-batch: its
next token needs the last one, so that the next step of a micro-batch begins when its last step has
passed all stages. A stage therefore computes the pp micro-batches in turn, and all of them wait for
the slowest, on each of the pp stages. So pp micro-batches are like pp data-parallel ranks that run
their steps together: each has 1/pp of the requests and of the KV cache, its own limit of tokens,
and steps that last pp times as long as on one stage (vLLM 0.33, v1/core/sched/async_scheduler.py,
``next_decode_eligible_step``, and v1/engine/core.py, ``step_with_batch_queue``; SGLang,
managers/scheduler_pp_mixin.py).

A prompt that is longer than the limit of tokens has several chunks, which need no token of each
other and follow one another in consecutive micro-batches. The micro-batches that one prompt uses in
this way count as one rank.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.serving.deployment import Deployment
from parc.compiler.cost.serving.memory import request_cache_bytes
from parc.compiler.ir.serving import Traffic


def with_micro_batches(deployment: Deployment, traffic: Traffic) -> Deployment:
    """Return ``deployment`` with the number of micro-batches that differ in their requests.

    Data-parallel ranks of a pipeline (models with experts) are evaluated with equal micro-batches.
    """
    pp = deployment.layout.pp
    if pp == 1 or deployment.layout.dp > 1:
        return deployment
    # Micro-batches without a request take no time.
    requests = int(cached_requests(deployment, traffic))
    micro_batches = max(min(round(pp / _prompt_chunks(deployment, traffic)), requests), 1)
    if deployment.micro_batches == micro_batches:
        return deployment
    return replace(deployment, micro_batches=micro_batches)


def latency_ratio(deployment: Deployment, traffic: Traffic) -> float:
    """Return the latency of a prompt, divided by the time that it adds to the steps of its rank.

    The chunks of a prompt pass the ``pp`` stages one after the other, and take as long as chunks +
    pp - 1 chunks on one stage. In a step, a rank computes one chunk in each of its micro-batches,
    and takes as long as ``pp`` chunks.
    """
    pp, parts = deployment.layout.pp, deployment.rank_micro_batches
    if pp == 1:
        return 1.0
    chunks = _prompt_chunks(deployment, traffic)
    return max((chunks + pp - 1) * parts / (chunks * pp), 1.0)


def _prompt_chunks(deployment: Deployment, traffic: Traffic) -> float:
    """Return the number of micro-batches, at least 1, whose tokens a mean prompt fills."""
    return max(traffic.computed_input_tokens / deployment.setup.step_token_limit, 1.0)


def cached_requests(
    deployment: Deployment, traffic: Traffic, cache_bytes: float | None = None
) -> float:
    """Return the number of requests that the cache of a data-parallel rank can store.

    It is 0 if the cache cannot store one complete request. ``cache_bytes`` is the size of the cache
    in bytes; None: that of ``deployment.memory``.
    """
    cache = deployment.memory.kv_bytes if cache_bytes is None else cache_bytes

    def cache_bytes_of(tokens: float) -> float:
        """Return the cache bytes of a request with ``tokens`` tokens."""
        return request_cache_bytes(deployment.model, deployment.layout, deployment.setup, tokens)

    if cache < cache_bytes_of(traffic.input_tokens + traffic.output_tokens):
        return 0.0
    # Half of the output has been generated, unless the engine reserves all of it.
    generated = 1 if deployment.engine.scheduling.reserves_output else 2
    return cache / cache_bytes_of(traffic.input_tokens + traffic.output_tokens / generated)
