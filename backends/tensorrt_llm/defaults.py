"""Defaults of TensorRT-LLM, and values that it derives from a model's config."""

from __future__ import annotations

from parc.compiler.ir import Gpu, Model

MOST_REQUESTS, MOST_TOKENS = 2048, 8192
"""Defaults of --max_batch_size and --max_num_tokens (builder.py, class BuildConfig)."""
BLOCK_TOKENS = 32
"""Tokens per block of the KV cache; 1.0 has no setting for it."""


def context_tokens(model: Model) -> int:
    """Return the longest sequence, in tokens, that TensorRT-LLM derives from the model's config.

    Only configs without the original length are multiplied by the scaling factor
    (_torch/pyexecutor/model_engine.py, _infer_max_seq_len).
    """
    position = model.position
    if position.scaling in ("linear", "dynamic"):
        return int(position.max_positions * position.scaling_factor)
    return position.max_positions


def default_stages(layers: int, pp: int) -> tuple[int, ...]:
    """Return the number of layers of each pipeline stage in the default split.

    The first stages get one more layer each (mapping.py, pp_layers).
    """
    return tuple(layers // pp + (stage < layers % pp) for stage in range(pp))


def default_batch(gpu: Gpu) -> tuple[int, int]:
    """Return the default limits on any GPU: (concurrent requests, tokens per step)."""
    del gpu
    return MOST_REQUESTS, MOST_TOKENS
