"""Weights and cache of every pipeline stage, by vLLM's own model classes and its own planner.

The classes are built on the meta device, where a tensor has a shape and no bytes, as the first rank
of every group except the pipeline's. Their queries of CUDA return placeholders: no kernel runs.
Runs under the Python that has vLLM; imports neither PARC nor pytest.
"""

from __future__ import annotations

import types
from typing import Any

LAYOUT = "LBHNC"
"""Order of a block's dimensions, which attention backends would choose; counts do not depend on it.
"""

OPERATIONS = (
    "dynamic_per_token_scaled_fp8_quant",
    "dynamic_scaled_fp8_quant",
    "fused_add_rms_norm",
    "fused_add_rms_norm_static_fp8_quant",
    "fused_qk_norm_rope",
    "per_token_group_fp8_quant",
    "relu_squared",
    "rms_norm",
    "rms_norm_dynamic_per_token_quant",
    "rms_norm_per_block_quant",
    "rms_norm_static_fp8_quant",
    "rotary_embedding",
    "silu_and_mul",
    "silu_and_mul_nvfp4_quant",
    "silu_and_mul_per_block_quant",
    "silu_and_mul_quant",
    "static_scaled_fp8_quant",
)
"""Operations of vLLM's compiled library that constructors and compiler passes look up."""


def caches(config: Any, left: list[int]) -> dict[str, Any]:
    """Return the cache that fits into ``left`` bytes per rank, given for every stage.

    ``weights_bytes`` has a number per stage; ``block_tokens``, ``blocks`` and ``requests`` (of the
    longest length) apply to all stages.
    """
    _replace_cuda_functions()
    built = [_stage(config, stage) for stage in range(len(left))]
    from vllm.config import set_current_vllm_config
    from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
    from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config

    specs = [specs for _, specs in built]
    with set_current_vllm_config(config, check_compile=False):
        groups = get_global_kv_cache_groups(config, specs)
        planned = get_kv_cache_configs(config, specs, left, groups)[0]
        requests = get_max_concurrency_for_kv_cache_config(config, planned)
    return {
        "weights_bytes": [weights for weights, _ in built],
        "block_tokens": config.cache_config.block_size,
        "blocks": planned.num_blocks,
        "requests": requests,
    }


def _stage(config: Any, stage: int) -> tuple[int, dict[str, Any]]:
    """Return the bytes of the weights of a stage, and the cache spec of each of its layers."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform

    _join_groups(config.parallel_config, stage)
    layers = config.compilation_config.static_forward_context
    layers.clear()
    torch.set_default_dtype(config.model_config.dtype)
    with set_current_vllm_config(config, check_compile=False):
        with torch.device("meta"):
            model = initialize_model(vllm_config=config)
        current_platform.update_block_size_for_backend(config)
        config.cache_config.kv_cache_layout = LAYOUT
        asked = {
            name: spec
            for name, layer in layers.items()
            if hasattr(layer, "get_kv_cache_spec")
            and (spec := layer.get_kv_cache_spec(config)) is not None
        }
    tensors = {id(one): one for one in model.parameters()}.values()
    return sum(one.numel() * one.element_size() for one in tensors), asked


def _join_groups(parallel: Any, stage: int) -> None:
    """Become the first rank of every group, but the rank of ``stage`` in the pipeline's."""
    import vllm.distributed.parallel_state as state

    tp, pp, dp = (
        parallel.tensor_parallel_size,
        parallel.pipeline_parallel_size,
        parallel.data_parallel_size,
    )
    sizes = {"_TP": tp, "_DP": dp, "_EP": tp * dp, "_PCP": 1, "_WORLD": tp * pp}
    sizes["_DCP"] = parallel.decode_context_parallel_size
    for name, size in sizes.items():
        setattr(state, name, _group(size, 0))
    state._PP = _group(pp, stage)


class Group(types.SimpleNamespace):
    """Group of ranks with the attributes that vLLM reads; it is hashable because vLLM uses it as a
    key.
    """

    __hash__ = object.__hash__  # type: ignore[assignment]


def _group(size: int, rank: int) -> Any:
    process_group = Group(size=lambda: size, rank=lambda: rank)
    return Group(
        world_size=size,
        rank=rank,
        local_rank=0,
        rank_in_group=rank,
        ranks=list(range(size)),
        is_first_rank=rank == 0,
        is_last_rank=rank == size - 1,
        device_group=process_group,
        cpu_group=process_group,
        unique_name="",
    )


def _replace_cuda_functions() -> None:
    """Replace streams, events and compiled operations that constructors look up and do not call."""
    import torch
    import vllm.platforms

    vllm.platforms._current_platform.current_device = lambda: "meta"
    torch.cuda.current_device = lambda: 0
    torch.cuda.Stream = torch.cuda.Event = type("Nothing", (), {})
    for name in OPERATIONS:
        setattr(torch.ops._C, name, types.SimpleNamespace(default=None))
