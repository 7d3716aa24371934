"""Plain implementation of a service search, to which the fast one is compared.

It tries all data-parallel sizes up to the number of GPUs, counts the layers of each stage one by
one, and builds the shard once per stage. It shares only single formulas with the search.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.compiler.cost.counts.cache import count_windowed_layers
from parc.compiler.cost.counts.params import norm_params
from parc.compiler.cost.serving import deployment, memory, stages
from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.cost.serving.shard import (
    count_rank_weights,
    shard_bytes,
    with_expert_copies,
)
from parc.compiler.evaluate import service_rules
from parc.compiler.ir import Model
from parc.compiler.ir.serving import ServingLayout, ServingSetup
from parc.compiler.ir.serving_plan import ServingProblem, StageCache
from parc.compiler.search import enumerate_serving_layouts


def data_parallel_sizes(problem: ServingProblem, stage_gpus: int, pp: int) -> list[int]:
    """Return every data-parallel size for which the cluster has enough GPUs."""
    if problem.pins.dp is not None:
        return enumerate_serving_layouts._sizes_within_limits(problem, "dp", [problem.pins.dp])
    most = problem.cluster.gpus // (stage_gpus * pp) if problem.model.experts else 1
    return enumerate_serving_layouts._sizes_within_limits(
        problem, "dp", list(range(1, max(most, 1) + 1))
    )


def count_layers(model: Model, first: int = 0, layers: int | None = None) -> LayerCounts:
    """Return the numbers of layers by type, counted in the list of layers."""
    last = model.layers if layers is None else first + layers
    return LayerCounts.from_kinds(model.layer_kinds[first:last])


def weights_bytes(
    model: Model, setup: ServingSetup, layout: ServingLayout, place: tuple[int, int, int]
) -> float:
    """Return the weights of a stage, given as (stage, first layer, number of layers)."""
    stage, first, layers = place
    shard = with_expert_copies(count_rank_weights(model, layout, setup), layout, setup)
    matrices = stages._vocabulary_matrices(model, setup.engine.sharding, stage, layout.pp)
    counts = count_layers(model, first, layers)
    part = replace(shard, layers=counts, embedding=matrices * shard.head)
    final = 2 * norm_params(model, model.hidden) if stage == layout.pp - 1 else 0.0
    return shard_bytes(model, part, setup) + final


def caches(
    problem: ServingProblem, layout: ServingLayout, longest: int | None = None
) -> tuple[StageCache, ...]:
    """Return the memory of all stages, each computed for itself."""
    model, setup = problem.model, problem.service.setup
    longest = problem.service.longest_request_tokens if longest is None else longest

    def stage_cache(stage: int, first: int, layers: int) -> StageCache:
        weights = weights_bytes(model, setup, layout, (stage, first, layers))
        overhead = memory.overhead_bytes(model, setup, layout.tp)
        blocks = stages.service_cache_blocks(problem, layout)
        block = blocks.pages_per_block(model, first, layers) * blocks.page_bytes
        outside = stages._tokens_outside_window(problem, layout, longest)
        outside *= count_windowed_layers(model, first, layers)
        return StageCache(
            stage=stage,
            layers=layers,
            weights_bytes=weights,
            overhead_bytes=overhead,
            cache_bytes=memory.available_cache_bytes(
                problem.cluster.gpu.memory_bytes, setup, weights, overhead
            ),
            block_bytes=block,
            longest_bytes=block * blocks.blocks_of_request(longest, layout.dcp)
            - outside * memory.kv_bytes_per_layer(model, layout.tp, setup),
        )

    sizes = stages.stage_layers(problem, layout)
    return tuple(stage_cache(one, sum(sizes[:one]), size) for one, size in enumerate(sizes))


def gemm_seconds(self: deployment.Deployment, weights: float, rows: float, nbytes: float) -> float:
    """Return the time of matrix multiplications, with rates that are computed each time."""
    read = weights * nbytes / self.weight_bytes_per_second(nbytes)
    return max(read, 2 * weights * rows / self.gemm_flops_per_second(nbytes))


def use_reference(patch: pytest.MonkeyPatch) -> None:
    """Replace the fast parts of the search by plain ones."""
    patch.setattr(enumerate_serving_layouts, "_data_parallel_sizes", data_parallel_sizes)
    patch.setattr(LayerCounts, "in_range", staticmethod(count_layers))
    patch.setattr(service_rules, "stage_caches", caches)
    patch.setattr(deployment.Deployment, "gemm_seconds", gemm_seconds)
