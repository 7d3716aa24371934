"""Defaults of SGLang, and values that SGLang derives from a model's config."""

from __future__ import annotations

from parc.backends.engine_constants import load_engine_constants
from parc.compiler.ir import Gpu
from parc.compiler.ir.engine_constants import EngineConstants

MIB = 2**20
CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
"""(GiB of device memory, tokens per step): the default below this memory
(arg_groups/memory_hook.py, handle_gpu_memory_settings)."""
LARGEST_CHUNK = 16384


def engine_constants() -> EngineConstants:
    """Return the constants of SGLang's cost model."""
    return load_engine_constants("sglang", __package__ or "")


def default_stages(layers: int, pp: int) -> tuple[int, ...]:
    """Return the number of layers of each pipeline stage in SGLang's default split.

    The last stages get one more layer each (distributed/utils.py, get_pp_indices).
    """
    return tuple(layers // pp + (stage >= pp - layers % pp) for stage in range(pp))


def default_batch(gpu: Gpu) -> tuple[int, int]:
    """Return SGLang's default limits on ``gpu``: (concurrent requests, tokens per step).

    SGLang derives the number of requests from the free memory; PARC limits it to the constant.
    """
    memory = gpu.memory_bytes / MIB
    tokens = next((chunk for gib, chunk in CHUNKS if memory < gib * 1024), LARGEST_CHUNK)
    return engine_constants().scheduling.max_running, tokens
