"""Memory traffic of training programs of PyTorch: element-wise kernels and copies.

The bytes of uncompiled programs are those of all operators that autograd records for one layer,
except matrix products, attention and views: the sizes of their inputs and outputs (torch 2.13,
transformers 5.24; tests/conformance/torch/test_activations.py). Kernel times of 43 runs on one H100
agree: the bytes of both programs move at 2.2 to 2.5 of 3.35 TB/s.
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import (
    FUSED_KERNELS,
    InputExchanges,
    KernelStack,
    LoraAdapters,
    Model,
    PassBytes,
    ProgramTraffic,
    RoutedBytes,
    UnitCopies,
)

EAGER = KernelStack("torch-eager", like="torch-native", properties={"fused_routing": False})
"""Kernels of torch that no compiler fuses. Attention is torch's scaled_dot_product_attention, which
selects the fastest kernel of the GPU. Index operators permute routed tokens."""

FSDP2_COPIES = UnitCopies(
    gather_shard=6.0,
    gather_whole=4.0,
    gather_frozen=4.0,
    reduce_whole=6.0,
    reduce_alone=8.0,
)
"""Copies of FSDP2 with fp32 weights, 16-bit gathers and fp32 reductions (torch.distributed.fsdp,
_fsdp_collectives.py): conversion of the shard (4 read, 2 written; 2 + 2 if it is stored in 16 bit),
copy out of the gathered buffer
(2 + 2), copy of 16-bit gradients into the fp32 input of the reduce-scatter (2 + 4), and copy of
this input on a single rank (4 + 4)."""
NO_CAST = PassBytes(0.0, 0.0)
AUTOCAST = PassBytes(6.0, 6.0)
"""Bytes per weight under autocast: conversion of the weight to 16 bit, and of its gradient to
fp32."""
EXCHANGE_COPIES = 2.0
"""Bytes per exchanged byte: a read and a write. The collectives divide the first dimension of a
tensor, the batch, so that the sequence is moved there and back (torch.distributed,
_functional_collectives.py, all_gather_single and reduce_scatter_single)."""
FP32_SUM = 12.0
"""Bytes per gradient to add it to the sum of the step in fp32: two reads and a write."""
SINK_SCORES = PassBytes(32.0, 40.0)
"""Bytes per attention score of gpt-oss (transformers 5.24, modeling_gpt_oss.py,
eager_attention_forward). Forward: product (2), scale (4), mask (6), joining with the sinks (4),
maximum (2), subtraction (4), softmax (4), copy without the sinks (4), and the read of the product
with the values (2). Backward: the same steps in reverse, where softmax reads two tensors and the
joining is undone."""


COMPILED_ROUTED = RoutedBytes(
    alone=PassBytes(14.5, 22.25), exchanged=PassBytes(22.5, 34.25), sent_once=PassBytes(12.0, 24.0)
)
"""Bytes per element of routed tokens in compiled layers of torchtitan 0.3.0 (models/common,
token_dispatcher.py), if the compiler fuses element-wise kernels and gathers, but neither indexed
additions nor exchanges. Forward: gather by expert (4), weight (4), and addition to the output
(6.5). Backward: weight with gather of the gradient (4), gradient of the weight (4), sum of both
matrices' gradients (6), and addition to the gradient of the input (8.25). An all-to-all needs
permutations on arrival and back: 4 + 4 forward, 4 + 8 backward. A library that sends a token once
replaces the first gather and the last addition of either pass."""
TRANSFORMERS_ROUTED = RoutedBytes(alone=PassBytes(14.25, 29.25))
"""Bytes per element of routed tokens (transformers 5.20, integrations/moe.py,
grouped_mm_experts_forward). Forward: gather by expert (4), weight (4), inverse permutation (4), and
sum over the experts of a token (2 read, 2 / 8 written). Backward: expansion of the gradient (2.25),
the inverse permutation, which adds to zeros (8), two products with weight and output (4 + 6), the
sum of the weights' gradients (2), the gather, which adds to zeros (6.25), and the sum with the
gradient of the router's input (0.75)."""


def compiled_traffic() -> ProgramTraffic:
    """Return the traffic of a program whose layers torch.compile compiles, under FSDP2.

    The compiler fuses element-wise kernels. FSDP2 copies weights and gradients outside of the
    compiled layers. Without FSDP2, the program runs under autocast.
    """
    alone = replace(
        FUSED_KERNELS, cast=AUTOCAST, exchange_copies=EXCHANGE_COPIES, routed=COMPILED_ROUTED
    )
    return replace(alone, cast=NO_CAST, copies=FSDP2_COPIES, sum_bytes=FP32_SUM, replicated=alone)


def decoder_traffic() -> ProgramTraffic:
    """Return the traffic of the decoder program that PARC emits, under FSDP2.

    The norm is torch's fused RMSNorm. The rotation converts queries and keys to fp32. The gradient
    of a norm's output is the sum of 2.5 gradients on average: three matrix products read the norm
    before attention, two the norm before the MLP.
    """
    sharded = ProgramTraffic(
        norm=PassBytes(4.0, 10.0),
        head_norm=PassBytes(4.0, 10.0),
        residual=PassBytes(6.0, 15.0),
        rotation=PassBytes(48.0, 52.0),
        gated=PassBytes(10.0, 18.0),
        plain=PassBytes(4.0, 6.0),
        logit_bytes=40.0,
        cast=NO_CAST,
        sum_bytes=FP32_SUM,
        exchange_copies=EXCHANGE_COPIES,
        separate_launches=True,
        copies=FSDP2_COPIES,
    )
    return _with_autocast(sharded, norm=PassBytes(21.0, 41.0), rotation=sharded.rotation)


def transformers_traffic(model: Model) -> ProgramTraffic:
    """Return the traffic of a program that trains the transformers decoder of ``model`` with FSDP2.

    The norm consists of separate kernels in fp32 (LlamaRMSNorm). Attention with sinks has no fused
    kernel in torch.
    """
    norm = PassBytes(36.0, 92.0)
    sharded = replace(
        decoder_traffic(),
        norm=norm,
        head_norm=norm,
        rotation=PassBytes(20.0, 32.0),
        scores=SINK_SCORES if model.attention.sinks else None,
        routed=TRANSFORMERS_ROUTED,
    )
    return _with_autocast(sharded, norm=PassBytes(41.0, 113.0), rotation=PassBytes(33.0, 55.0))


ADAPTER_CAST = PassBytes(12.0, 12.0)
"""Bytes per element of an adapter's input under autocast: peft converts it to fp32, the format of
the adapter, and autocast back to 16 bit (peft 0.21, tuners_utils.py, _cast_input_dtype)."""
FROZEN_NORM = 8.0
"""Bytes per element that the backward pass of a norm of transformers does not move if its weight is
frozen: the product that becomes the gradient of the weight (6), and its sum (2)."""


def with_frozen_norms(traffic: ProgramTraffic, lora: LoraAdapters | None) -> ProgramTraffic:
    """Return ``traffic`` of a transformers decoder if it trains only the LoRA adapters ``lora``.

    Frozen weights and the residual stream are in 16 bit under DDP too.
    """
    if lora is None:
        return traffic
    norm, head_norm = (
        PassBytes(each.forward, each.backward - FROZEN_NORM)
        for each in (traffic.norm, traffic.head_norm)
    )
    sharded = replace(traffic, norm=norm, head_norm=head_norm)
    replicated = replace(
        sharded, cast=AUTOCAST, adapter_cast=ADAPTER_CAST, copies=None, replicated=None
    )
    return replace(sharded, replicated=replicated)


def _with_autocast(sharded: ProgramTraffic, norm: PassBytes, rotation: PassBytes) -> ProgramTraffic:
    """Return ``sharded`` with the traffic of the same program under DDP with autocast.

    The residual stream is in fp32, and every matrix product converts its input. ``norm`` and
    ``rotation`` are the bytes per element under autocast.
    """
    replicated = replace(
        sharded,
        norm=norm,
        residual=PassBytes(12.0, 30.0),
        rotation=rotation,
        cast=AUTOCAST,
        copies=None,
        replicated=None,
    )
    return replace(sharded, replicated=replicated)


def under_deepspeed(traffic: ProgramTraffic) -> ProgramTraffic:
    """Return ``traffic`` of a program whose weights are stored in 16 bit, as DeepSpeed's are.

    DeepSpeed gathers into and reduces from its own flat buffers. Their copies, and the kernels that
    add gradients, are not counted. With AutoTP, every matrix that is split by columns exchanges the
    gradient of its input (deepspeed 0.19, module_inject/layers.py, ColumnParallel): queries, keys
    and values, gate and up projection.
    """
    exchanges = InputExchanges(mixer=3, gated=2)
    return replace(traffic, copies=None, sum_bytes=0.0, input_exchanges=exchanges, replicated=None)
