"""Data-parallel variants of torch that the search tries: FSDP, hybrid sharding, ZeRO-2, DDP."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.shared.variants import apply_pins
from parc.compiler.ir import ContextComm, Problem, Variant

SHARD_SPANS = (1, 2, 4)
"""Numbers of NVLink domains (hosts without NVLink) that a hybrid shard may span."""


def torch_variants(
    problem: Problem, stages: tuple[int, ...], comm: ContextComm
) -> tuple[Variant, ...]:
    """Return full sharding, then hybrid sharding from the smallest shard, then other ``stages``."""
    offered = [Variant(3, cp_comm=comm)] if 3 in stages else []
    offered += [Variant(3, shard, cp_comm=comm) for shard in _shards(problem)]
    offered += [Variant(stage, cp_comm=comm) for stage in stages if stage != 3]
    return apply_pins(problem, offered)


def _shards(problem: Problem) -> Iterator[int]:
    """Yield hybrid shard sizes: GPUs of a few NVLink domains, divided by the apply_pins tp x cp."""
    cluster, pins = problem.cluster, problem.pins
    if pins.dp_shard is not None or pins.zero_stage not in (None, 3):
        return
    beside = (pins.tp or 1) * (pins.cp or 1)
    for span in SHARD_SPANS:
        ranks = cluster.node.near_gpus * span
        if ranks < cluster.gpus and ranks % beside == 0 and ranks // beside > 1:
            yield ranks // beside
