"""Blocks of vLLM's cache, which layers of keys and values and layers of states take from one pool.

A page is what one layer has of a block, and pages of all layers are equal: where a model has
recurrent layers, the tokens of a page are raised until a state fits into one, and states are padded
to it (platforms/interface.py, _align_hybrid_block_size). Layers form groups of one kind and of
nearly one size; a block has a page for every layer of a group, and each group of a request takes
blocks of its own (v1/core/kv_cache_planning.py, _get_kv_cache_groups_uniform_page_size; 0.33).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, lcm

from parc.compiler.cost.counts.kv_cache import layer_token_bytes
from parc.compiler.cost.counts.recurrent_state import state_bytes
from parc.compiler.cost.serving.constants import KV_BYTES
from parc.compiler.cost.serving.shard import Layers
from parc.compiler.ir import Model
from parc.compiler.ir.serving import ServingSetup

KERNEL_TOKENS = 16
"""Tokens of the shortest block that attention kernels take."""
CHUNK = 64
"""Tokens at whose multiples the kernels of Gated DeltaNet hand out states for the prefix cache."""
STATES = 3
"""Blocks that the longest request may hold in a group of states: the running one, the one before,
and one for the prefix cache, which is on by default (MambaSpec.max_memory_usage_bytes). Gated
DeltaNet before Hopper has no kernel for the last one, needs two, and no multiples of CHUNK."""
UNEVEN = 1.5
"""Layers of the two kinds whose ratio is below this form one group each, padded."""


@dataclass(frozen=True, slots=True)
class CacheBlocks:
    """How the cache of a model is cut, on one of tp ranks."""

    tokens: int
    """Tokens of a block."""
    page_bytes: float
    """Bytes of a block in one layer."""
    attention: int
    """Groups of layers that keep keys and values: blocks that so many tokens take."""
    recurrent: int
    """Groups of layers that keep a state."""

    def layers(self, model: Model, first: int, layers: int) -> int:
        """Pages of a block on a stage: layers of its widest group, which all stages share."""
        held = Layers.of(model.layer_kinds[first : first + layers])
        pages = 1
        if self.attention:
            pages = max(pages, ceil(held.attention / self.attention))
        if self.recurrent:
            pages = max(pages, ceil(held.recurrent / self.recurrent))
        return pages

    def of_request(self, tokens: int, shards: int) -> int:
        """Blocks of a request of ``tokens``, which ``shards`` ranks share; each has its states."""
        return self.attention * ceil(ceil(tokens / shards) / self.tokens) + self.states

    def longest(self, blocks: int, shards: int) -> int | None:
        """Tokens of the longest request that ``blocks`` hold; None where any length fits."""
        if not self.attention:
            return None if blocks >= self.states else 0
        return max(blocks - self.states, 0) // self.attention * self.tokens * shards

    @property
    def states(self) -> int:
        """Blocks that the states of one request may take."""
        return self.recurrent * STATES


def cache_blocks(model: Model, setup: ServingSetup, tp: int, block_tokens: int) -> CacheBlocks:
    """The blocks of ``model`` where the engine was told ``block_tokens``."""
    token = layer_token_bytes(model.attention, tp, KV_BYTES[setup.kv])
    every = Layers.of(model.layer_kinds)
    if not every.recurrent:
        return CacheBlocks(block_tokens, block_tokens * token, 1, 0)
    state = state_bytes(model, setup.engine, tp)
    if not every.attention:
        return CacheBlocks(block_tokens, state, 0, 1)
    step = max(block_tokens, KERNEL_TOKENS)
    if model.linear is not None:
        step = lcm(step, CHUNK)
    tokens = step * ceil(state / (step * token))
    few, many = sorted((every.attention, every.recurrent))
    size = many if many < UNEVEN * few else few
    groups = ceil(every.attention / size), ceil(every.recurrent / size)
    return CacheBlocks(tokens, tokens * token, *groups)
