"""Configuration and pipeline split of models with a layer pattern, by Megatron-Core.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from emulated_gpu import swapped


def model_config(args: Namespace) -> Any:
    """Build the config as pretrain_gpt.py does, or as pretrain_hybrid.py does if there is a
    pattern.
    """
    from megatron.training.argument_utils import gpt_config_from_args, hybrid_config_from_args

    return (hybrid_config_from_args if args.hybrid_layer_pattern else gpt_config_from_args)(args)


def transformer_config(args: Namespace) -> Any:
    """Build the TransformerConfig of the program that trains the model."""
    from megatron.training import argument_utils, arguments

    if hasattr(argument_utils, "gpt_config_from_args"):
        return model_config(args).transformer
    # pretrain_gpt.py and gpt_builders.py of Megatron-Core 0.17 and 0.18 call this function
    return arguments.core_transformer_config_from_args(args)


def allocation_module() -> Any:
    """Return the module that splits a layer pattern, which Megatron-Core 0.18 renamed."""
    try:
        return import_module("megatron.core.models.hybrid.hybrid_layer_allocation")
    except ModuleNotFoundError:
        return import_module("megatron.core.ssm.mamba_hybrid_layer_allocation")


def segment(pattern: str, pp: int, rank: int, virtual: int | None) -> list[int]:
    """Return [first layer, number of layers] of a chunk, by the function that HybridModel calls."""
    allocation = allocation_module()
    main = allocation.parse_hybrid_pattern(pattern).main_pattern
    with _as_rank_of(allocation, rank, pp):
        letters, first = allocation.select_pipeline_segment(main, object(), virtual)
    return [first, len(letters)]


@contextlib.contextmanager
def _as_rank_of(allocation: Any, rank: int, size: int) -> Iterator[None]:
    """Make every process group report ``size`` ranks and this process as ``rank``."""
    import torch.distributed as dist

    swaps: list[tuple[Any, str, Any]] = [
        (dist, "get_rank", lambda *_: rank),
        (dist, "get_world_size", lambda *_: size),
        (allocation, "log_on_each_pipeline_stage", lambda *_, **__: None),
        (allocation, "log_single_rank", lambda *_, **__: None),
    ]
    with swapped(swaps):
        yield


def divide_mamba(config: Any) -> None:
    """Apply the checks of MambaMixer (reimplemented) and of its context parallelism (called)."""
    from megatron.core.ssm.mamba_context_parallel import MambaContextParallel

    heads, groups = config.mamba_num_heads, config.mamba_num_groups
    tp, cp = config.tensor_model_parallel_size, config.context_parallel_size
    assert heads % tp == 0, "nheads must be evenly divisble by tp_size"
    assert groups % tp == 0, "ngroups must be evenly divisible by tp_size"
    assert heads % groups == 0, "nheads must be evenly divisible by ngroups"
    inner = heads * config.mamba_head_dim
    ranks = SimpleNamespace(size=lambda: cp, rank=lambda: 0)
    sizes = (inner // tp, heads // tp, groups // tp, config.mamba_state_dim)
    # the parameters after the sizes are tensors, which differ between versions and are only stored
    tensors = list(signature(MambaContextParallel).parameters)[1 + len(sizes) :]
    MambaContextParallel(ranks, *sizes, **dict.fromkeys(tensors))
