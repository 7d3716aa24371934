"""Build a rank's model on the meta device with Megatron's own builder; count its parameters.

Only settings that change no parameter's shape are replaced: fused kernels, TransformerEngine's
layers (by Megatron's local ones), sequence and context parallelism, recompute, low precision.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from build_hybrid import hybrid_stack_spec
from build_hybrid import swaps as hybrid_swaps
from hybrid_stages import model_config

OFF = (
    "apply_rope_fusion",
    "cross_entropy_loss_fusion",
    "fp4",
    "fp8",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "moe_grouped_gemm",
    "moe_permute_fusion",
    "moe_router_padding_for_quantization",
    "perform_initialization",
    "sequence_parallel",
)
NONE = ("recompute_granularity", "recompute_method", "recompute_modules", "recompute_num_layers")


def count_parameters(args: Namespace, padded_vocab: int) -> int:
    """Return the number of parameters of the joined rank; shared parameters count once."""
    from megatron.core.process_groups_config import ProcessGroupCollection

    local = copy.copy(args)
    vars(local).update(dict.fromkeys(OFF, False) | dict.fromkeys(NONE))
    vars(local).update(transformer_impl="local", no_persist_layer_norm=True)
    vars(local).update(
        context_parallel_size=1, cp_comm_type=["p2p"], padded_vocab_size=padded_vocab
    )
    vars(local).update(softmax_type="vanilla", window_size=None)
    config = model_config(local)
    if local.hybrid_layer_pattern is not None:
        config.hybrid_stack_spec = hybrid_stack_spec(config.transformer)
    module, name = config.builder.rsplit(".", 1)
    builder = getattr(importlib.import_module(module), name)(config)
    groups, vpp = (
        ProcessGroupCollection.use_mpu_process_groups(),
        args.virtual_pipeline_model_parallel_size,
    )
    with _meta(config.transformer):
        chunks = [_chunk(builder, groups, v, vpp) for v in range(vpp or 1)]
    return sum({id(p): p.numel() for chunk in chunks for p in chunk.parameters()}.values())


def _chunk(builder: Any, groups: Any, virtual: int, vpp: int | None) -> Any:
    """Build a model chunk of the joined rank, as training/models/dist_utils.py does."""
    first = virtual == 0 and groups.pp.rank() == 0
    last = virtual == (vpp or 1) - 1 and groups.pp.rank() == groups.pp.size() - 1
    return builder.build_model(
        groups, pre_process=first, post_process=last, vp_stage=virtual if vpp else None
    )


@contextlib.contextmanager
def _meta(config: Any) -> Iterator[None]:
    """Create all tensors and streams that would need a GPU on the meta device."""
    import torch
    from megatron.core.transformer import multi_token_prediction as mtp
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    begin = DotProductAttention.__init__

    def begin_latent(self: Any, *given: Any, **named: Any) -> None:
        # latent attention passes arguments that only TransformerEngine's core attention has
        for name in ("k_channels", "v_channels"):
            named.pop(name, None)
        begin(self, *given, **named)

    stream = type("Stream", (), {"__init__": lambda self, *_, **__: None})
    swaps: list[tuple[Any, str, Any]] = [
        (DotProductAttention, "__init__", begin_latent),
        (torch.cuda, "current_device", lambda: torch.device("meta")),
        (torch.cuda, "current_stream", lambda *_, **__: None),
        (torch.cuda, "Stream", stream),
        (torch.Tensor, "cuda", lambda self, *_, **__: self),
        (mtp, "is_inference_column_parallel_linear", lambda _: False),
        *hybrid_swaps(config),
    ]
    before = [getattr(owner, name, None) for owner, name, _ in swaps]
    for owner, name, value in swaps:
        setattr(owner, name, value)
    try:
        with torch.device("meta"):
            yield
    finally:
        for (owner, name, _), value in zip(swaps, before, strict=True):
            setattr(owner, name, value)
