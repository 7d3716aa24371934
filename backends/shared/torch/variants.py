"""Data-parallel variants of torch that the search tries: FSDP, hybrid sharding, ZeRO-2, DDP."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.shared.variants import apply_pins
from parc.compiler.ir import ContextComm, LayoutVariant, Problem

SHARD_SPANS = (1, 2, 4)
"""Numbers of NVLink domains that a hybrid shard can span; without NVLink, numbers of hosts."""


def torch_variants(
    problem: Problem, stages: tuple[int, ...], comm: ContextComm
) -> tuple[LayoutVariant, ...]:
    """Return the sharding variants that the search tries.

    The order is: full sharding, hybrid sharding from the smallest shard to the largest, then the
    other ZeRO stages. Values that the spec sets replace those of every variant.

    Args:
        problem: the problem whose layouts are searched.
        stages: ZeRO stages that the framework supports.
        comm: communication of context parallelism, such as "p2p".
    """
    if (problem.pins.dp_shard or 1) > 1:
        # Without sharding, the size of a shard that the spec sets would have no effect.
        stages = tuple(stage for stage in stages if stage)
    offered = [LayoutVariant(3, cp_comm=comm)] if 3 in stages else []
    offered += [LayoutVariant(3, shard, cp_comm=comm) for shard in _hybrid_shard_sizes(problem)]
    offered += [LayoutVariant(stage, cp_comm=comm) for stage in stages if stage != 3]
    return apply_pins(problem, offered)


def _hybrid_shard_sizes(problem: Problem) -> Iterator[int]:
    """Yield the values of dp_shard that the search tries with hybrid sharding.

    The ranks of one shard occupy all GPUs of one, two or four NVLink domains. Because each
    data-parallel rank occupies tp x cp GPUs, dp_shard is the number of these GPUs divided by tp x
    cp.
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
