"""Memory models of training programs under PyTorch's own parallelism: FSDP2 and DDP.

The bytes of saved tensors were read from autograd for one layer, and those of the loss from the
allocator's live bytes, with torch 2.13, torchtitan 0.3.0 and transformers 5.23. The programs run
uncompiled with flash attention and, except for transformers, with torch's fused RMSNorm
(tests/conformance/torch/test_activations.py).
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import LoraAdapters, Model, ProgramMemory, StateBytes
from parc.compiler.ir.program_memory import FRAGMENTATION as ONE_STREAM_FRAGMENTATION

WORKSPACE_BYTES = 64.0 * 2**20
"""cuBLAS workspaces of the forward and the backward thread."""
FRAGMENTATION = 0.05
"""Share of activations and logits that the allocator loses with FSDP2, besides the memory of its
streams; with a bias of 1 % on 52 published readings of torchtitan."""
EAGER_FRAGMENTATION = 0.14
"""The same for the decoders that PARC emits, which compute the loss in fp32 operator by operator;
fitted to 46 runs on one H200."""
FROZEN_NORM_COPIES = 2.0
"""Largest number of 16-bit copies of the residual stream that a norm with a frozen weight saves: an
fp32 copy of its input."""
SHARED_INPUTS = 2.5
"""Mean number of matrix products that read the output of one norm: three after the attention norm
(queries, keys, values), two after the MLP norm (gate, up)."""


def fsdp2_memory() -> ProgramMemory:
    """Return the memory model of a program that FSDP2 shards, with mixed precision.

    Weights, gradients and two Adam moments are stored in fp32 and sharded. A gathered FSDP unit
    stores 16-bit weights and, in the backward pass, also 16-bit gradients.

    The loss of torch stores 14 bytes per logit: the 16-bit logit (2), the fp32 logit (4), its
    log-softmax (4) and its gradient (4). If the vocabulary is split over ranks, the backward pass
    stores 18 bytes per logit: the 16-bit logit, and log-softmax, one-hot gradient, softmax and
    their sum, each in fp32 (torch.distributed.tensor.parallel.loss). Programs that free the 16-bit
    logits before the backward pass still reserve them, because fp32 tensors do not fit into their
    place.
    """
    return ProgramMemory(
        name="fsdp2",
        # Bytes per parameter: fp32 weight 4, fp32 gradient 4, two fp32 Adam moments 8; gathered
        # weight 2.
        state=StateBytes(4.0, 4.0, 8.0, gathered=2.0),
        unit_bytes=4.0,
        loss_bytes=14.0,
        split_loss_bytes=18.0,
        workspace_bytes=WORKSPACE_BYTES,
        reduced_bytes=4.0,
        fragmentation=FRAGMENTATION,
    )


def emitted_decoder_memory() -> ProgramMemory:
    """Return the memory model of the decoder program that PARC emits, under FSDP2.

    The field ``replicated`` of the result is the memory model of the same program under DDP.
    Compared with ``fsdp2_memory``, the model accounts for four properties of the program: a gated
    MLP also saves the output of its activation function, every tensor-parallel rank stores all
    logits, the root FSDP unit gathers the embedding and the output projection together, and the
    logits before their conversion to fp32 are freed before the backward pass
    (tests/conformance/torch/test_peaks.py).
    """
    program = replace(
        fsdp2_memory(),
        activation_copies=1.0,
        loss_bytes=12.0,
        whole_logits=True,
        split_loss_bytes=0.0,
        root_bytes=2.0,
        fragmentation=EAGER_FRAGMENTATION,
    )
    return replace(program, replicated=ddp_autocast_memory(program, norm_copies=1.0))


def ddp_autocast_memory(program: ProgramMemory, norm_copies: float) -> ProgramMemory:
    """Return the memory model of ``program`` under DDP with autocast.

    Weights and the residual stream are fp32, and every matrix product casts its input to 16 bits.
    The 16-bit copies of the weights stay in memory until the backward pass. ``norm_copies`` is the
    number of copies of the residual stream that a norm saves.
    """
    return replace(
        program,
        name=f"{program.name} autocast",
        state=StateBytes(4.0, 4.0, 8.0, cast=2.0, casts_head=True),
        residual_bytes=4.0,
        norm_copies=norm_copies,
        input_copies=SHARED_INPUTS,
        head_input_bytes=2.0 + 4.0 * norm_copies,
        fragmentation=ONE_STREAM_FRAGMENTATION,
        replicated=None,
    )


def transformers_memory() -> ProgramMemory:
    """Return the memory model of a program that trains a decoder of transformers, under FSDP2.

    The field ``replicated`` of the result is the memory model of the same program under DDP.
    """
    program = replace(
        with_transformers_decoder(emitted_decoder_memory()),
        name="transformers",
        whole_embedding=True,
        replicated=None,
    )
    return replace(program, replicated=ddp_autocast_memory(program, norm_copies=2.0))


def with_transformers_decoder(program: ProgramMemory) -> ProgramMemory:
    """Return ``program`` with the saved activations of the decoder in the library transformers.

    Each norm saves its input as an fp32 copy and its result in 16 bits. The 16-bit logits are freed
    before the backward pass of the loss, because no operator reads them again. GPT-2 computes its
    GELU operator by operator (activations.py, NewGELUActivation), which saves three tensors more.
    """
    return replace(program, norm_copies=3.0, tanh_copies=3.0, loss_bytes=12.0, head_input_bytes=8.0)


def with_transformers_attention(program: ProgramMemory, model: Model) -> ProgramMemory:
    """Return ``program`` with what the attention of ``model`` stores in the library transformers.

    Attention with sinks has no fused kernel: it saves the softmax, copies keys and values to every
    query head, and stores two gradients of the scores in the backward pass
    (modeling_gpt_oss.py, eager_attention_forward).
    """
    if not model.attention.sinks:
        return program
    replicated = program.replicated and with_transformers_attention(program.replicated, model)
    return replace(
        program,
        fused_attention=False,
        score_gradients=2.0,
        repeats_keys=True,
        replicated=replicated,
    )


def with_adapters(program: ProgramMemory, lora: LoraAdapters | None) -> ProgramMemory:
    """Return ``program`` if it trains only the LoRA adapters ``lora``.

    All other weights are stored in 16 bit. Their linear layers save no input, and a norm whose
    weight is frozen saves only its input, which transformers copies to fp32. Under DDP, autocast
    converts the weights and the input of each adapter, which are in fp32.
    """
    if lora is None:
        return program
    copied, norm_copies = program.for_zero_stage(0), min(program.norm_copies, FROZEN_NORM_COPIES)
    sharded = replace(
        program,
        name=f"{program.name} adapters",
        frozen=StateBytes(2.0, 0.0, 0.0, gathered=2.0),
        adapters=lora,
        saved_bytes=0.0,
        norm_copies=norm_copies,
        head_input_bytes=2.0 * norm_copies,  # the input of the final norm
    )
    replicated = replace(
        sharded,
        name=f"{sharded.name} autocast",
        state=copied.state,
        separate_adapter_inputs=True,
        fragmentation=copied.fragmentation,
        replicated=None,
    )
    return replace(sharded, replicated=replicated)
