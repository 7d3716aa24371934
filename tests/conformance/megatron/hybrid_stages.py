"""Configuration and pipeline split of models with a layer pattern, by Megatron-Core.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from emulated_gpu import swapped


def model_config(args: Namespace) -> Any:
    """Build the config as pretrain_gpt.py does, or as pretrain_hybrid.py does if there is a
    pattern.
    """
    from megatron.training.argument_utils import gpt_config_from_args, hybrid_config_from_args

    return (hybrid_config_from_args if args.hybrid_layer_pattern else gpt_config_from_args)(args)


def segment(pattern: str, pp: int, rank: int, virtual: int | None) -> list[int]:
    """Return [first layer, number of layers] of a chunk, by the function that HybridModel calls."""
    from megatron.core.models.hybrid.hybrid_layer_allocation import (
        parse_hybrid_pattern,
        select_pipeline_segment,
    )

    main = parse_hybrid_pattern(pattern).main_pattern
    with _as_rank_of(rank, pp):
        letters, first = select_pipeline_segment(main, object(), virtual)
    return [first, len(letters)]


@contextlib.contextmanager
def _as_rank_of(rank: int, size: int) -> Iterator[None]:
    """Make every process group report ``size`` ranks and this process as ``rank``."""
    import torch.distributed as dist
    from megatron.core.models.hybrid import hybrid_layer_allocation as allocation

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
    MambaContextParallel(ranks, *sizes, None, None, 3, None, None, None, D_has_hdim=False)
