"""Pipeline stages of a serving engine: layers, memory and KV-cache blocks of each stage.

The cache follows vLLM's planner (v1/core/kv_cache_planning.py): a block stores a number of tokens
in all layers of the stage, the stage with the fewest blocks determines their number, and the engine
refuses to start unless one request of the maximum length fits.
"""

from __future__ import annotations

from parc.compiler.cost.counts.cache import count_windowed_layers, round_up_to_blocks
from parc.compiler.cost.counts.params import extra_params, norm_params
from parc.compiler.cost.serving.draft import draft_cache_bytes_per_token, draft_weights_bytes
from parc.compiler.cost.serving.layer_counts import LayerCounts
from parc.compiler.cost.serving.memory import (
    CacheBlocks,
    available_cache_bytes,
    cache_blocks,
    kv_bytes_per_layer,
    overhead_bytes,
)
from parc.compiler.cost.serving.shard import (
    RankWeights,
    count_rank_weights,
    layers_bytes,
    with_expert_copies,
)
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.engine_constants import ExtraLayers, ShardingConstants
from parc.compiler.ir.serving import ServingLayout, ServingMemory, ServingSetup, split_layers_evenly
from parc.compiler.ir.serving_plan import ServingProblem, StageCache

MOST_MOVED_LAYERS = 4
"""Maximum number of layers that ``stage_splits`` moves away from the first and from the last
stage."""


def stage_splits(layers: int, pp: int, extra: ExtraLayers) -> tuple[tuple[int, ...], ...]:
    """Return the candidate splits of ``layers`` layers into ``pp`` pipeline stages.

    A split is the number of layers of each stage. The candidates are the even split and splits with
    fewer layers in the first and the last stage. ``extra`` selects the stages that get the
    remaining layers of the even split.
    """
    # The first stage stores the embedding and the last one the output projection, so that moving
    # layers to the middle leaves more memory for the cache (vllm-project/vllm #6920).
    splits = [split_layers_evenly(layers, pp, extra)]
    for moved in range(1, MOST_MOVED_LAYERS + 1):
        ends = layers // pp - moved
        if pp < 3 or ends < 1:
            break
        middle = split_layers_evenly(layers - 2 * ends, pp - 2, "first")
        splits.append((ends, *middle, ends))
    # With two stages there is no middle; only the last one has more work (output projection).
    if pp == 2 and layers % 2 == 0 and layers > 2:
        splits.append((layers // 2 + 1, layers // 2 - 1))
    return tuple(dict.fromkeys(splits))


def service_cache_blocks(problem: ServingProblem, layout: ServingLayout) -> CacheBlocks:
    """Return the block size and layer groups of the cache of the service in ``problem``.

    The number of tokens per block is that of the spec.
    """
    service = problem.service
    return cache_blocks(problem.model, service.setup, layout.tp, service.block_tokens)


def stage_layers(problem: ServingProblem, layout: ServingLayout) -> tuple[int, ...]:
    """Return the number of decoder layers of each pipeline stage.

    If ``layout.stages`` is empty, the split is the default of the engine.
    """
    if layout.stages:
        return layout.stages
    extra = problem.service.setup.engine.sharding.extra_layers
    return split_layers_evenly(problem.model.layers, layout.pp, extra)


def stage_caches(
    problem: ServingProblem, layout: ServingLayout, longest: int | None = None
) -> tuple[StageCache, ...]:
    """Return the memory and the cache of one rank of every pipeline stage.

    ``longest`` is the length of the longest request in tokens. If it is None, the length in the
    spec is used.
    """
    model, setup, memory = problem.model, problem.service.setup, problem.cluster.gpu.memory_bytes
    longest = problem.service.longest_request_tokens if longest is None else longest
    # These values are the same on all stages; searches of large clusters need them often.
    whole = with_expert_copies(count_rank_weights(model, layout, setup), layout, setup)
    overhead = overhead_bytes(model, setup, layout.tp)
    blocks = service_cache_blocks(problem, layout)
    request_blocks = blocks.blocks_of_request(longest, layout.dcp)
    outside = _tokens_outside_window(problem, layout, longest)
    outside_bytes = outside * kv_bytes_per_layer(model, layout.tp, setup)
    draft = draft_weights_bytes(setup, layout), draft_cache_bytes_per_token(setup, layout.tp)
    found, first = [], 0
    for stage, layers in enumerate(stage_layers(problem, layout)):
        weights = _stage_weights_bytes(model, setup, whole, layout.pp, (stage, first, layers))
        # A block has one page for each layer of the widest group on this stage.
        block = blocks.pages_per_block(model, first, layers) * blocks.page_bytes
        if stage == layout.pp - 1:  # the draft of speculative decoding runs on the last stage
            weights, block = weights + draft[0], block + draft[1] * blocks.tokens
        # vLLM frees the blocks of tokens that are outside the window of a layer.
        freed = outside_bytes * count_windowed_layers(model, first, layers) if outside else 0.0
        cache = StageCache(
            stage=stage,
            layers=layers,
            weights_bytes=weights,
            overhead_bytes=overhead,
            cache_bytes=available_cache_bytes(memory, setup, weights, overhead),
            block_bytes=block,
            longest_bytes=block * request_blocks - freed,
        )
        found.append(cache)
        first += layers
    return tuple(found)


def _tokens_outside_window(problem: ServingProblem, layout: ServingLayout, longest: int) -> int:
    """Return how many tokens of a request a layer with a sliding window does not store.

    ``longest`` is the number of tokens of the request. The result is per rank.
    """
    # In a layer without a window, each decode context-parallel (dcp) rank stores every dcp-th
    # token; in a layer with a window, each of them stores all tokens of the window.
    window, block = problem.model.attention.window, problem.service.block_tokens
    if window is None:
        return 0
    tokens = round_up_to_blocks(-(-longest // layout.dcp), block)
    return tokens - round_up_to_blocks(min(longest, window), block)


def _stage_weights_bytes(
    model: Model, setup: ServingSetup, whole: RankWeights, pp: int, place: tuple[int, int, int]
) -> float:
    """Return the bytes of weights on one rank of a pipeline stage.

    The first stage also stores the embedding; the last stage also stores the output projection and
    the final norm. For some model families, engines store the embedding, or both matrices, on every
    stage.

    ``whole`` contains the weight elements of the layout, by part of the model. ``place`` is (stage,
    index of the first layer of the stage, number of layers of the stage).
    """
    stage, first, layers = place
    matrices = _vocabulary_matrices(model, setup.engine.sharding, stage, pp)
    counts = LayerCounts.in_range(model, first, layers)
    # Engines split only tables of the vocabulary; the others are assumed to be whole on each rank.
    ends = extra_params(model, "embedding") if stage == 0 else 0
    if stage == pp - 1:
        ends += norm_params(model, model.hidden) + extra_params(model, "output")
    return layers_bytes(model, whole, setup, counts) + 2 * (matrices * whole.head + ends)


def fullest_stage_memory(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout, part: RankWeights
) -> ServingMemory:
    """Return the memory of the pipeline stage whose cache stores the fewest tokens.

    ``layout.stages`` must be set, and ``part`` is the result of ``count_rank_weights``. Cache bytes
    are scaled to the number of pages per block of the widest stage, so that a request needs the
    same number of bytes on every stage.
    """
    overhead = overhead_bytes(model, setup, layout.tp)
    blocks = cache_blocks(model, setup, layout.tp, setup.engine.memory.default_block_tokens)
    whole = with_expert_copies(part, layout, setup)
    draft = draft_weights_bytes(setup, layout), draft_cache_bytes_per_token(setup, layout.tp)
    budgets, first, widest = [], 0, 1.0
    for stage, layers in enumerate(layout.stages):
        weights = _stage_weights_bytes(model, setup, whole, layout.pp, (stage, first, layers))
        pages = float(blocks.pages_per_block(model, first, layers))
        if stage == layout.pp - 1:  # the draft of speculative decoding runs on the last stage
            weights += draft[0]
            pages += draft[1] * blocks.tokens / blocks.page_bytes
        left = available_cache_bytes(cluster.gpu.memory_bytes, setup, weights, overhead)
        # Stages are compared by bytes per page, because all stages have the same number of blocks.
        budgets.append((left / pages, weights))
        first, widest = first + layers, max(widest, pages)
    page, weights = min(budgets)
    per_token = blocks.attention * widest * blocks.page_bytes / blocks.tokens / layout.dcp
    tokens = page * widest / per_token if per_token else 0.0
    return ServingMemory(weights, overhead, page * widest, per_token, tokens)


def _vocabulary_matrices(model: Model, sharding: ShardingConstants, stage: int, pp: int) -> int:
    """Return the number of vocabulary matrices (embedding, output projection) on a stage."""
    if model.family in sharding.full_vocabulary_families:
        return 1 if model.tied_embeddings else 2
    is_first = stage == 0 or model.family in sharding.full_embedding_families
    is_last = stage == pp - 1
    # Tied weights are one tensor only if both ends are on one rank.
    return 1 if is_first and is_last and model.tied_embeddings else is_first + is_last
