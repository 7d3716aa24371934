"""Memory models of the programs with which the published readings were taken."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.deepspeed.memory import deepspeed_zero_memory
from parc.backends.megatron.memory import (
    megatron_fp8_memory,
    megatron_memory,
    transformer_engine_workspace_bytes,
    with_gradient_bytes,
)
from parc.backends.shared.torch.memory import fsdp2_memory
from parc.compiler.ir import Generation, ProgramMemory, StateBytes

OVERLAP_STREAMS = 3
"""Streams of TransformerEngine's GEMMs that overlap tensor-parallel communication. Besides its own
workspace TransformerEngine allocates one that all of them share (cpp_extensions/gemm.py,
_NUM_MAX_UB_STREAMS)."""


FIXED_SEGMENTS_FRAGMENTATION = 0.2
"""Fraction of the bytes of activations and logits that torch's allocator loses without expandable
segments. Readings of torchtitan that were started without its run script fit 0.19, those of
Nanotron 0.16 (no bias) to 0.2 (largest error)."""


def nanotron() -> ProgramMemory:
    """Return the memory model of Nanotron.

    It adds the 16-bit gradients of a backward pass to fp32 gradients (gradient_accumulator.py),
    does not fuse activations, and computes the loss in fp32.
    """
    return ProgramMemory(
        name="nanotron",
        state=StateBytes(2.0, 6.0, 12.0),
        activation_copies=1.0,
        loss_bytes=14.0,
        workspace_bytes=64.0 * 2**20,
        fragmentation=FIXED_SEGMENTS_FRAGMENTATION,
    )


def bf16_adam() -> ProgramMemory:
    """Return the memory model of torchtune's full fine-tuning on one GPU: weights, gradients and
    both moments of Adam in bf16 (torchtune README, "optimization flags")."""
    return ProgramMemory(
        name="bf16_adam",
        state=StateBytes(2.0, 2.0, 4.0),
        fused_norms=False,
        activation_copies=1.0,
        rotary_copies=1.0,
        loss_bytes=14.0,
        workspace_bytes=64.0 * 2**20,
    )


def unfused(program: ProgramMemory) -> ProgramMemory:
    """Return ``program`` with the attention matrix and the dropout masks of 2022."""
    return replace(
        program,
        fused_attention=False,
        fused_norms=False,
        attention_dropout=True,
        hidden_dropout=True,
    )


def program_of(text: str, precision: str, generation: Generation) -> ProgramMemory:
    """Return the memory model for ``megatron unfused dropout fused_loss``: a program, then
    deviations."""
    name, *features = text.split()
    program = {
        "megatron": lambda: megatron_memory(precision, generation),
        "fp8_parameters": lambda: megatron_fp8_memory(precision, generation),
        "deepspeed": lambda: deepspeed_zero_memory(precision),
        "fsdp2": fsdp2_memory,
        "nanotron": nanotron,
        "bf16_adam": bf16_adam,
    }[name]()
    if "unfused" in features:
        program = unfused(program)
    if "local" in features:
        # Megatron's own layers need no workspace of TransformerEngine.
        engine = transformer_engine_workspace_bytes(generation)
        program = replace(
            program,
            workspace_bytes=program.workspace_bytes - engine,
            grouped_workspace_bytes=0.0,
            fused_norms=False,
        )
    if "eager" in features:
        program = replace(program, last_product=True)
    if "tp_overlap" in features:
        shared = OVERLAP_STREAMS * transformer_engine_workspace_bytes(generation)
        program = replace(program, workspace_bytes=program.workspace_bytes + shared)
    if "bf16_gradients" in features:
        program = with_gradient_bytes(program, 2.0, precision)
    if "separate_gradients" in features:
        program = replace(program, placeholder_bytes=0.0)
    if "compiled" in features:
        # The compiled loss stores 16-bit logits and overwrites them with their gradient.
        program = replace(program, loss_bytes=4.0, activation_copies=0.0, rotary_copies=0.0)
    if "float_logits" in features:
        # torchtune's model returns fp32 logits (modules/transformer.py), so that the compiled loss
        # stores them and their fp32 gradient.
        program = replace(program, loss_bytes=8.0)
    if "fixed_segments" in features:
        program = replace(program, fragmentation=FIXED_SEGMENTS_FRAGMENTATION)
    if "chunked_loss" in features:
        program = replace(program, loss_parts=8)
    dropout = "dropout" in features
    program = replace(program, attention_dropout=dropout, hidden_dropout=dropout)
    return replace(program, loss_bytes=10.0) if "fused_loss" in features else program
