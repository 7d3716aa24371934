"""Blocks of a paged cache that stores keys, values and recurrent states in one pool.

A page is one layer's part of a block, and the pages of all layers have equal size. If a model has
recurrent layers, the tokens per block are raised until a state fits into one page, and states are
padded to it (vLLM, platforms/interface.py, _align_hybrid_block_size). Layers form groups of one
type and of nearly equal size; a block has one page per layer of a group, and a request occupies
separate blocks in each group (v1/core/kv_cache_planning.py, _get_kv_cache_groups_uniform_page_size;
0.33).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, lcm

from parc.compiler.cost.counts.cache import layer_token_bytes, state_bytes
from parc.compiler.cost.serving.constants import KV_BYTES
from parc.compiler.cost.serving.shard import Layers
from parc.compiler.ir import Model
from parc.compiler.ir.engine_constants import StatePageConstants
from parc.compiler.ir.serving import ServingSetup


@dataclass(frozen=True, slots=True)
class CacheBlocks:
    """Block size and layer groups of the cache of a model, on one tensor rank."""

    tokens: int
    """Tokens per block."""
    page_bytes: float
    """Bytes per block and layer."""
    attention: int
    """Groups of attention layers; a request occupies one block per group and ``tokens``."""
    recurrent: int
    """Groups of recurrent layers."""
    blocks_per_state: int = 0
    """Maximum number of blocks that a request occupies per group of recurrent layers."""

    def pages(self, model: Model, first: int, layers: int) -> int:
        """Return the pages per block on a stage: the layers of the widest group of the stage."""
        stage = Layers.of(model.layer_kinds[first : first + layers])
        pages = 1
        if self.attention:
            pages = max(pages, ceil(stage.attention / self.attention))
        if self.recurrent:
            pages = max(pages, ceil(stage.recurrent / self.recurrent))
        return pages

    def of_request(self, tokens: int, shards: int) -> int:
        """Return the blocks per rank of a request of ``tokens`` tokens.

        ``shards`` ranks share the tokens; each of them stores all states.
        """
        return self.attention * ceil(ceil(tokens / shards) / self.tokens) + self.states

    def longest(self, blocks: int, shards: int) -> int | None:
        """Return the tokens of the longest request that fits into ``blocks``; None: unlimited."""
        if not self.attention:
            return None if blocks >= self.states else 0
        return max(blocks - self.states, 0) // self.attention * self.tokens * shards

    @property
    def states(self) -> int:
        """Maximum number of blocks that the states of one request occupy."""
        return self.recurrent * self.blocks_per_state


def cache_blocks(model: Model, setup: ServingSetup, tp: int, block_tokens: int) -> CacheBlocks:
    """Return how the cache of ``model`` is divided if the engine is configured to ``block_tokens``.

    Raises:
        ValueError: the model has recurrent layers, and the engine declares no policy for them.
    """
    token_bytes = layer_token_bytes(model.attention, tp, KV_BYTES[setup.kv])
    layers = Layers.of(model.layer_kinds)
    if not layers.recurrent:
        return CacheBlocks(block_tokens, block_tokens * token_bytes, 1, 0)
    policy = setup.engine.states.pages
    if policy is None:
        raise ValueError(f"{setup.engine.name} declares no states.pages for {model.name}")
    state = state_bytes(model, setup.engine, tp)
    if not layers.attention:
        return CacheBlocks(block_tokens, state, 0, 1, policy.blocks_per_request)
    step = max(block_tokens, policy.kernel_tokens)
    if model.linear is not None:
        step = lcm(step, policy.prefix_chunk_tokens)
    tokens = step * ceil(state / (step * token_bytes))
    groups = _layer_groups(layers, policy)
    return CacheBlocks(tokens, tokens * token_bytes, *groups, policy.blocks_per_request)


def _layer_groups(layers: Layers, policy: StatePageConstants) -> tuple[int, int]:
    """Return the groups of (attention, recurrent) layers.

    A group has as many layers as the rarer type, or as the more frequent type if both are nearly
    equally frequent; the smaller group is then padded.
    """
    few, many = sorted((layers.attention, layers.recurrent))
    size = many if many < policy.single_group_below * few else few
    return ceil(layers.attention / size), ceil(layers.recurrent / size)
