"""Defaults of TensorRT-LLM, and values that it derives from a model's config."""

from __future__ import annotations

MOST_REQUESTS, MOST_TOKENS = 2048, 8192
"""Defaults of --max_batch_size and --max_num_tokens (builder.py, class BuildConfig)."""
BLOCK_TOKENS = 32
"""Tokens per block of the KV cache; 1.0 has no setting for it."""


def default_stages(layers: int, pp: int) -> tuple[int, ...]:
    """Return the number of layers of each pipeline stage in the default split.

    The first stages get one more layer each (mapping.py, pp_layers).
    """
    return tuple(layers // pp + (stage < layers % pp) for stage in range(pp))
