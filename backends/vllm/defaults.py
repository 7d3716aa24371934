"""Defaults of vLLM, and values that vLLM derives from a model's config."""

from __future__ import annotations

from parc.backends.engine_constants import load_engine_constants
from parc.compiler.ir import Gpu, ServingProblem
from parc.compiler.ir.engine_constants import EngineConstants
from parc.compiler.ir.serving import split_layers_evenly

GIB = 2**30
LARGE_GIB, MIDDLE_GIB = 160, 70
"""GiB of device memory from which vLLM by default runs more requests and longer steps."""
LOW_LATENCY_TOKENS = 256
"""Default tokens per step and data-parallel rank with DeepEP's low-latency kernels
(config/scheduler.py, DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP)."""
SIDE_CHANNEL_PORT = 5600
"""First port at which an engine offers its KV cache (envs.py, VLLM_NIXL_SIDE_CHANNEL_PORT)."""
SIDE_CHANNEL_STEP = 100
"""Ports per process: rank k of data parallelism uses the k-th one (nixl/base_scheduler.py)."""
STEP_TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
"""Numbers of tokens per step that PARC tries for services with latency limits or pipelines."""
DP_RPC_PORT = 29550
SUPERVISOR_PORT = 9256


def engine_constants() -> EngineConstants:
    """Return the constants of vLLM's cost model."""
    return load_engine_constants("vllm", __package__ or "")


def default_stages(layers: int, pp: int) -> tuple[int, ...]:
    """Return the number of layers of each pipeline stage in vLLM's default split.

    Source: distributed/utils.py.
    """
    return split_layers_evenly(layers, pp, engine_constants().sharding.extra_layers)


def padded_vocab(vocab: int) -> int:
    """Return the number of rows of the embedding, after vLLM pads the vocabulary.

    Source: vocab_parallel_embedding.py.
    """
    multiple = engine_constants().sharding.vocab_multiple
    return -(-vocab // multiple) * multiple


def default_batch(gpu: Gpu) -> tuple[int, int]:
    """Return vLLM's default limits on ``gpu``: (concurrent requests, tokens per step).

    An API server uses these values if --max-num-seqs and --max-num-batched-tokens are absent. They
    depend on the memory of the GPU (engine/arg_utils.py, get_batch_defaults).
    """
    # vLLM excludes the A100 by name, although it has 80 GB.
    memory = gpu.memory_bytes / GIB
    if memory >= LARGE_GIB:
        return 1024, 16384
    if memory >= MIDDLE_GIB and "a100" not in gpu.name.lower():
        return 1024, 8192
    return 256, 2048


def step_tokens_to_try(problem: ServingProblem) -> tuple[int, ...]:
    """Return values of --max-num-batched-tokens to try instead of the default.

    There are none if the buffers of an expert exchange have the size of a step, and if the model
    has recurrent states, whose blocks bound the steps (config/cache.py, mamba_cache_mode).
    """
    has_states = problem.model.recurrent is not None
    is_fixed = problem.pins.all2all == "deepep_low_latency"
    return () if has_states or is_fixed else STEP_TOKENS
