"""Data-parallel variants of torch that the search tries: FSDP, hybrid sharding, ZeRO-2, DDP."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.shared.variants import apply_pins
from parc.compiler.ir import ContextComm, LayoutVariant, Problem

SHARD_SPANS = (1, 2, 4)
"""Numbers of NVLink domains (of hosts, if there is no NVLink) that a hybrid shard may span."""


def torch_variants(
    problem: Problem, stages: tuple[int, ...], comm: ContextComm
) -> tuple[LayoutVariant, ...]:
    """Return the sharding variants that the search tries, with the values that the spec fixes.

    The order is: full sharding, hybrid sharding from the smallest shard to the largest, then the
    other ZeRO ``stages``. ``comm`` is the communication of context parallelism.
    """
    offered = [LayoutVariant(3, cp_comm=comm)] if 3 in stages else []
    offered += [LayoutVariant(3, shard, cp_comm=comm) for shard in _hybrid_shard_sizes(problem)]
    offered += [LayoutVariant(stage, cp_comm=comm) for stage in stages if stage != 3]
    return apply_pins(problem, offered)


def _hybrid_shard_sizes(problem: Problem) -> Iterator[int]:
    """Yield the sizes that dp_shard may have with hybrid sharding.

    A shard consists of all GPUs of one, two or four NVLink domains. Each data-parallel rank has tp
    x cp of these GPUs.
    """
    cluster, pins = problem.cluster, problem.pins
    if pins.dp_shard is not None or pins.zero_stage not in (None, 3):
        return
    inner_ranks = (pins.tp or 1) * (pins.cp or 1)
    for span in SHARD_SPANS:
        ranks = cluster.node.nvlink_or_host_gpus * span
        # A shard over all GPUs would be full sharding, and a shard of one rank would be DDP.
        if ranks < cluster.gpus and ranks % inner_ranks == 0 and ranks // inner_ranks > 1:
            yield ranks // inner_ranks
