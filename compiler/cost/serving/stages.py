"""Pipeline stages of a serving engine: their layers, their memory, the blocks of their caches.

The arithmetic of the cache is that of vLLM's planner (v1/core/kv_cache_planning.py): a block holds
some tokens of all layers of the stage, the stage with the fewest blocks sets their number, and a
start is refused unless one request of the longest length fits.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.counts.kv_cache import rounded_tokens, windowed_layers
from parc.compiler.cost.counts.params import norm_params
from parc.compiler.cost.serving.cache_blocks import CacheBlocks, cache_blocks
from parc.compiler.cost.serving.memory import (
    BLOCK_TOKENS,
    cache_bytes,
    kv_bytes_per_layer,
    overhead_bytes,
)
from parc.compiler.cost.serving.shard import Layers, held, shard_bytes
from parc.compiler.ir import Cluster, Model
from parc.compiler.ir.serving import ServingLayout, ServingMemory, ServingSetup, even_stages
from parc.compiler.ir.serving_plan import ServingProblem, StageCache

EVERYWHERE = frozenset(
    {"bloom", "cohere", "cohere2", "dbrx", "falcon", "gemma2", "gemma3_text", "gpt2", "gpt_oss"}
    | {"granitemoe", "granitemoehybrid", "granitemoeshared", "mixtral", "nemotron_h", "olmoe"}
    | {"opt", "qwen2_moe", "qwen3_moe", "qwen3_next", "stablelm"}
)
"""Families whose classes in vLLM build embedding and output projection on every stage, used or
not: they have no PPMissingLayer in their place (model_executor/models/*.py, 0.33)."""
EMBEDDED = frozenset({"qwen3_5_text", "qwen3_5_moe_text"})
"""Families of which only the embedding is built everywhere."""


def stage_splits(layers: int, pp: int) -> tuple[tuple[int, ...], ...]:
    """Splits that are worth pricing: the even one, and those that relieve both ends.

    The first stage holds the embedding and the last the output projection, so a layer moved from
    them to the middle makes room for cache where memory is tight (vllm-project/vllm #6920).
    """
    even = even_stages(layers, pp)
    found = [even]
    for moved in range(1, 5):
        ends = layers // pp - moved
        if pp < 3 or ends < 1:
            break
        middle = even_middle(layers - 2 * ends, pp - 2)
        found.append((ends, *middle, ends))
    if pp == 2 and layers % 2 == 0 and layers > 2:
        found.append((layers // 2 + 1, layers // 2 - 1))
    return tuple(dict.fromkeys(found))


def even_middle(layers: int, stages: int) -> tuple[int, ...]:
    """``layers`` over ``stages``, the first ones longer by one where it does not divide."""
    short, long = divmod(layers, stages)
    return tuple(short + (stage < long) for stage in range(stages))


def service_blocks(problem: ServingProblem, layout: ServingLayout) -> CacheBlocks:
    """How the cache is cut where the engine is told what the spec says."""
    service = problem.service
    return cache_blocks(problem.model, service.setup, layout.tp, service.block_tokens)


def stage_caches(
    problem: ServingProblem, layout: ServingLayout, longest: int | None = None
) -> tuple[StageCache, ...]:
    """Memory and cache of one rank of every stage; ``longest`` tokens a request, or as asked."""
    longest = problem.service.longest if longest is None else longest
    stages = layout.stages or even_stages(problem.model.layers, layout.pp)
    starts = [sum(stages[:stage]) for stage in range(len(stages))]
    return tuple(
        _stage_cache(problem, layout, (stage, first, layers), longest)
        for stage, (first, layers) in enumerate(zip(starts, stages, strict=True))
    )


def _stage_cache(
    problem: ServingProblem, layout: ServingLayout, place: tuple[int, int, int], longest: int
) -> StageCache:
    """``place``: the stage, its first layer, its number of layers."""
    model, service = problem.model, problem.service
    stage, first, layers = place
    setup = service.setup
    weights = stage_weights_bytes(model, setup, layout, place)
    overhead = overhead_bytes(model, setup, layout.tp)
    blocks = service_blocks(problem, layout)
    block = blocks.layers(model, first, layers) * blocks.page_bytes
    unseen = _unseen_tokens(problem, layout, longest) * windowed_layers(model, first, layers)
    return StageCache(
        stage=stage,
        layers=layers,
        weights_bytes=weights,
        overhead_bytes=overhead,
        cache_bytes=cache_bytes(problem.cluster.gpu.memory_bytes, setup, weights, overhead),
        block_bytes=block,
        longest_bytes=block * blocks.of_request(longest, layout.dcp)
        - unseen * kv_bytes_per_layer(model, layout.tp, setup),
    )


def _unseen_tokens(problem: ServingProblem, layout: ServingLayout, longest: int) -> int:
    """Tokens of a rank's share of ``longest`` that a layer with a window does not keep.

    Each of the dcp ranks holds every dcp-th token, but all of a window.
    """
    window, block = problem.model.attention.window, problem.service.block_tokens
    if window is None:
        return 0
    tokens = rounded_tokens(-(-longest // layout.dcp), block)
    return tokens - rounded_tokens(min(longest, window), block)


def stage_weights_bytes(
    model: Model, setup: ServingSetup, layout: ServingLayout, place: tuple[int, int, int]
) -> float:
    """Bytes of weights on one rank of a stage: its layers, and what its end of the model adds."""
    stage, first, layers = place
    whole = held(model, layout, setup)
    is_last = stage == layout.pp - 1
    part = replace(
        whole,
        layers=Layers.of(model.layer_kinds[first : first + layers]),
        embedding=_vocabularies(model, stage, layout.pp) * whole.head,
    )
    final = 2 * norm_params(model, model.hidden) if is_last else 0.0
    return shard_bytes(model, part, setup) + final


def fullest_memory(
    model: Model, cluster: Cluster, setup: ServingSetup, layout: ServingLayout
) -> ServingMemory:
    """The budget of the stage that holds the fewest tokens; ``layout.stages`` must be known.

    Its cache is given in bytes of the longest stage, so that a request weighs the same everywhere.
    """
    overhead = overhead_bytes(model, setup, layout.tp)
    blocks = cache_blocks(model, setup, layout.tp, BLOCK_TOKENS)
    budgets, first, widest = [], 0, 1
    for stage, layers in enumerate(layout.stages):
        weights = stage_weights_bytes(model, setup, layout, (stage, first, layers))
        left = cache_bytes(cluster.gpu.memory_bytes, setup, weights, overhead)
        pages = blocks.layers(model, first, layers)
        budgets.append((left / pages, weights))
        first, widest = first + layers, max(widest, pages)
    page, weights = min(budgets)
    per_token = blocks.attention * widest * blocks.page_bytes / blocks.tokens / layout.dcp
    tokens = page * widest / per_token if per_token else 0.0
    return ServingMemory(weights, overhead, page * widest, per_token, tokens)


def _vocabularies(model: Model, stage: int, pp: int) -> int:
    """Matrices of the vocabulary that a stage holds: embedding, output projection, or both."""
    if model.family in EVERYWHERE:
        return 1 if model.tied_embeddings else 2
    is_first, is_last = stage == 0 or model.family in EMBEDDED, stage == pp - 1
    # Tied weights are one tensor only where both ends are on one rank.
    return 1 if is_first and is_last and model.tied_embeddings else is_first + is_last
