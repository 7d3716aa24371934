"""Layers of a hybrid model on the meta device: Megatron's own mixers with its local linear layers.

Megatron's specs of such layers contain only TransformerEngine's classes. If such a class contains a
norm, its replacement has one of the same shape. Kernels are never called.

Runs under the Python that has torch and Megatron-Core; imports neither PARC nor pytest.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

Swap = tuple[Any, str, Any]
"""(owner, name, value)."""


def swaps(config: Any) -> list[Swap]:
    """Return the replacements for building a hybrid model with ``config``."""
    import megatron.core.models.gpt.experimental_attention_variant_module_specs as variants
    import megatron.core.models.hybrid.hybrid_block as block
    import megatron.core.ssm.gated_delta_net.common as gated_delta_net
    import megatron.core.ssm.gated_delta_net.gdn as gdn
    import megatron.core.ssm.mamba_mixer as mamba
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    backend = _backend()
    return [
        (variants, "_get_backend_spec_provider", lambda config: backend),
        (variants, "_get_self_attention_module_spec", _plain_attention),
        (gated_delta_net, "HAVE_FLA", True),
        (gdn, "chunk_gated_delta_rule", _never),
        (mamba, "HAVE_MAMBA_SSM", True),
        (mamba, "ExtendedRMSNorm", _inner_norm()),
        (mamba, "get_cuda_rng_tracker", lambda: SimpleNamespace(fork=nullcontext)),
        (block, "TENorm", WrappedTorchNorm),
    ]


def _never(*_: Any, **__: Any) -> None:
    raise RuntimeError("a kernel was called")


def _backend() -> Any:
    from megatron.core.models.backends import LocalSpecProvider

    class Backend(LocalSpecProvider):
        def column_parallel_layer_norm_linear(self) -> type:
            return normed_column()

    return Backend()


def normed_column() -> type:
    """Return a column-parallel layer with a norm of its input, like TransformerEngine's."""
    import torch
    from megatron.core.tensor_parallel import ColumnParallelLinear

    class NormedColumn(ColumnParallelLinear):
        def __init__(self, inputs: int, outputs: int, **named: Any) -> None:
            super().__init__(inputs, outputs, **named)
            self.layer_norm_weight = torch.nn.Parameter(torch.empty(inputs))
            if named["config"].normalization == "LayerNorm":
                self.layer_norm_bias = torch.nn.Parameter(torch.empty(inputs))

    return NormedColumn


def _inner_norm() -> type:
    """Return a class like the gated norm inside a Mamba layer, which belongs to another library."""
    import torch

    class InnerNorm(torch.nn.Module):
        def __init__(self, size: int, **_: Any) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(size))

    return InnerNorm


def _plain_attention(config: Any, backend: Any = None) -> Any:
    """Return the spec of full attention between layers of linear attention."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec

    layer = get_gpt_layer_local_spec(
        qk_layernorm=config.qk_layernorm, normalization=config.normalization
    )
    spec = layer.submodules.self_attention
    spec.metainfo["fuse_input_layernorm"] = False
    return spec


def hybrid_stack_spec(config: Any) -> Any:
    """Return hybrid_layer_specs.py with local layers: the layer for each letter of a pattern."""
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add as add
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.models.hybrid.hybrid_block import HybridStack, HybridStackSubmodules
    from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
    from megatron.core.ssm.mamba_mixer import MambaMixer, MambaMixerSubmodules
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.tensor_parallel import RowParallelLinear
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_layer import (
        MoETransformerLayer,
        TransformerLayer,
        TransformerLayerSubmodules,
    )

    column = normed_column()
    mixer = MambaMixerSubmodules(in_proj=column, out_proj=RowParallelLinear)
    mamba = MambaLayerSubmodules(mixer=ModuleSpec(MambaMixer, submodules=mixer), mamba_bda=add)
    fed = MLPSubmodules(linear_fc1=column, linear_fc2=RowParallelLinear)
    experts = get_moe_module_spec(use_te=False, num_experts=8, moe_grouped_gemm=False)
    layers = HybridStackSubmodules(
        mamba_layer=ModuleSpec(MambaLayer, submodules=mamba),
        attention_layer=ModuleSpec(
            TransformerLayer,
            submodules=TransformerLayerSubmodules(
                self_attention=_attention(config, column), self_attn_bda=add
            ),
        ),
        mlp_layer=ModuleSpec(
            MLPLayer,
            submodules=TransformerLayerSubmodules(
                mlp=partial(MLP.as_mlp_submodule, submodules=fed), mlp_bda=add
            ),
        ),
        moe_layer=ModuleSpec(
            MoETransformerLayer,
            submodules=TransformerLayerSubmodules(
                pre_mlp_layernorm=WrappedTorchNorm, mlp=experts, mlp_bda=add
            ),
        ),
    )
    return ModuleSpec(HybridStack, submodules=layers)


def _attention(config: Any, column: type) -> Any:
    from megatron.core.tensor_parallel import RowParallelLinear
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    norm = WrappedTorchNorm if config.qk_layernorm else None
    parts = SelfAttentionSubmodules(
        linear_qkv=column,
        core_attention=DotProductAttention,
        linear_proj=RowParallelLinear,
        q_layernorm=norm,
        k_layernorm=norm,
    )
    return ModuleSpec(
        SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=parts
    )
