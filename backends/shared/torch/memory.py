"""Memory models of training programs under PyTorch's own parallelism: FSDP2 and DDP.

The bytes of saved tensors were read from autograd for one layer, and those of the loss from the
allocator's live bytes, with torch 2.13, torchtitan 0.3.0 and transformers 5.23. The programs run
uncompiled with flash attention and, except for transformers, with torch's fused RMSNorm
(tests/conformance/torch/test_activations.py).
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import ProgramMemory, StateBytes

WORKSPACE_BYTES = 64.0 * 2**20
"""cuBLAS workspaces of the forward and the backward thread."""
SHARED_INPUTS = 2.5
"""Mean number of matrix products that read the output of one norm: three after the attention norm
(queries, keys, values), two after the MLP norm (gate, up)."""


def fsdp2_memory() -> ProgramMemory:
    """Return the memory model of FSDP2 with mixed precision, which shards the fp32 state.

    The state is weights, gradients and two Adam moments. A gathered unit stores 16-bit weights and,
    in the backward pass, also 16-bit gradients. torch's loss stores per logit: the 16-bit logit,
    the fp32 logit, its log-softmax and its gradient, 2 + 4 + 4 + 4 = 14 bytes. If the vocabulary is
    split over ranks (torch.distributed.tensor.parallel.loss), the backward pass stores four fp32
    values at the same time: log-softmax, one-hot gradient, softmax and their sum, 16 bytes.
    """
    return ProgramMemory(
        name="fsdp2",
        fused_norms=False,
        # Bytes per parameter: fp32 weight 4, fp32 gradient 4, two fp32 Adam moments 8; gathered
        # weight 2.
        state=StateBytes(4.0, 4.0, 8.0, gathered=2.0),
        unit_bytes=4.0,
        gathers_again=False,
        loss_bytes=14.0,
        split_loss_bytes=16.0,
        workspace_bytes=WORKSPACE_BYTES,
    )


def emitted_decoder_memory() -> ProgramMemory:
    """Return the memory model of PARC's own decoder under FSDP2.

    The field ``replicated`` contains the memory model under DDP. In an uncompiled program a gated
    MLP saves the output of its activation function too. Tensor-parallel ranks gather the logits.
    The root FSDP unit gathers the embedding and the output projection together.
    """
    program = replace(
        fsdp2_memory(),
        activation_copies=1.0,
        whole_logits=True,
        split_loss_bytes=0.0,
        root_bytes=2.0,
    )
    return replace(program, replicated=ddp_autocast_memory(program, norm_copies=1.0))


def ddp_autocast_memory(program: ProgramMemory, norm_copies: float) -> ProgramMemory:
    """Return the memory model of ``program`` under DDP with autocast.

    Weights and the residual stream are fp32, and every matrix product casts its input to 16 bits.
    The 16-bit copies of the weights stay in memory until the backward pass.
    """
    return replace(
        program,
        name=f"{program.name} autocast",
        state=StateBytes(4.0, 4.0, 8.0, cast=2.0, casts_head=True),
        residual_bytes=4.0,
        norm_copies=norm_copies,
        input_copies=SHARED_INPUTS,
        head_input_bytes=2.0 + 4.0 * norm_copies,
        replicated=None,
    )
