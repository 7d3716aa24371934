"""Memory models of the training programs that PARC starts.

What they keep was read off the tensors that autograd saves for one layer, and the loss off the
bytes that are alive, in torch 2.13 with torchtitan 0.3.0 and transformers 5.23: every program runs
uncompiled, with flash attention and, but for transformers, torch's fused RMSNorm
(tests/conformance/test_activations.py).
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.cost.memory.runtime import (
    Runtime,
    StateBytes,
    deepspeed,
    fsdp2,
    megatron,
    megatron_fp8_parameters,
    with_gradients,
)
from parc.compiler.ir import Generation

SHARED_INPUTS = 2.5
"""Products that read what one norm puts out: queries, keys and values; gate and up."""


def plain_fsdp2() -> Runtime:
    """The model that PARC writes, under FSDP2 or DDP.

    Uncompiled, a gated MLP keeps the output of its activation too. Ranks of a tensor-parallel
    group gather the logits. The root gathers embedding and output projection together.
    """
    runtime = replace(
        fsdp2(), activation_copies=1.0, whole_logits=True, split_loss_bytes=0.0, root_bytes=2.0
    )
    return replace(runtime, replicated=_autocast(runtime, norm_copies=1.0))


def accelerate() -> Runtime:
    """A Llama of transformers: its norms keep an fp32 copy of their input and a 16-bit result.

    The 16-bit logits are gone when the loss runs backward, for nobody reads them.
    """
    runtime = replace(
        plain_fsdp2(),
        name="accelerate",
        norm_copies=3.0,
        loss_bytes=12.0,
        head_input_bytes=8.0,
        replicated=None,
    )
    return replace(runtime, replicated=_autocast(runtime, norm_copies=2.0))


def _autocast(runtime: Runtime, norm_copies: float) -> Runtime:
    """``runtime`` under DDP: fp32 weights and residual stream, every product casts its input.

    The casts of weights are kept until the backward pass.
    """
    return replace(
        runtime,
        name=f"{runtime.name} autocast",
        state=StateBytes(4.0, 4.0, 8.0, cast=2.0, casts_head=True),
        residual_bytes=4.0,
        norm_copies=norm_copies,
        input_copies=SHARED_INPUTS,
        head_input_bytes=2.0 + 4.0 * norm_copies,
        replicated=None,
    )


def torchtitan() -> Runtime:
    """torchtitan, uncompiled: its loss makes the logits of an eighth of the sequence at a time.

    The hidden states are copied into parts and their gradient is added up in fp32; the output
    projection has 16-bit weights, a 16-bit gradient and its fp32 sum (components/loss.py,
    ChunkedLossWrapper).
    """
    return replace(
        fsdp2(),
        name="torchtitan",
        activation_copies=1.0,
        last_product=True,
        fused_projection=True,
        keeps_reduced=True,
        loss_parts=8,
        head_input_bytes=10.0,
        head_unit_bytes=8.0,
    )


def plain_deepspeed(precision: str, gradient_bytes: float) -> Runtime:
    """The model that PARC writes for DeepSpeed; its loss is torch's, as with FSDP2."""
    return replace(
        deepspeed(precision, gradient_bytes),
        activation_copies=1.0,
        repeats_keys=True,
        loss_bytes=14.0,
    )


def accelerate_deepspeed(precision: str, gradient_bytes: float) -> Runtime:
    """A Llama of transformers under DeepSpeed."""
    return replace(
        plain_deepspeed(precision, gradient_bytes),
        name="accelerate deepspeed",
        norm_copies=3.0,
        repeats_keys=False,
        loss_bytes=12.0,
        head_input_bytes=8.0,
    )


def training_runtime(
    name: str, precision: str, generation: Generation, gradient_bytes: float
) -> Runtime:
    """The memory model called ``name``; KeyError for another than those of the backends."""
    if name == "megatron":
        build = megatron_fp8_parameters if precision == "fp8" else megatron
        return with_gradients(build(precision, generation), gradient_bytes, precision)
    return {
        "fsdp2": plain_fsdp2(),
        "accelerate": accelerate(),
        "torchtitan": torchtitan(),
        "deepspeed": plain_deepspeed(precision, gradient_bytes),
        "accelerate deepspeed": accelerate_deepspeed(precision, gradient_bytes),
    }[name]
