"""Memory models of programs that torch's own parallelism runs: FSDP2 and DDP.

The saved tensors were read from autograd for one layer, and the loss from the live bytes, in torch
2.13 with torchtitan 0.3.0 and transformers 5.23. The programs run uncompiled, with flash attention
and, except for transformers, torch's fused RMSNorm (tests/conformance/torch/test_activations.py).
"""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.ir import ProgramMemory, StateBytes

WORKSPACE_BYTES = 64.0 * 2**20
"""cuBLAS workspaces of the forward and the backward thread."""
SHARED_INPUTS = 2.5
"""Mean number of products that read one norm's output: queries, keys and values; gate and up."""


def fsdp2() -> ProgramMemory:
    """Return FSDP2 with mixed precision: sharded fp32 weights, gradients and moments.

    A gathered unit holds its 16-bit weights and, in the backward pass, 16-bit gradients. The loss
    of torch keeps 16-bit logits, fp32 logits, their log-softmax and its gradient: 2 + 4 + 4 + 4.
    Over a split vocabulary (torch.distributed.tensor.parallel.loss) the backward pass has the
    log-softmax, a one-hot gradient, the softmax and their sum in fp32 at once: 16.
    """
    return ProgramMemory(
        name="fsdp2",
        fused_norms=False,
        state=StateBytes(4.0, 4.0, 8.0, gathered=2.0),
        unit_bytes=4.0,
        gathers_again=False,
        loss_bytes=14.0,
        split_loss_bytes=16.0,
        workspace_bytes=WORKSPACE_BYTES,
    )


def plain_fsdp2() -> ProgramMemory:
    """Return the decoder that PARC emits, under FSDP2, or DDP without sharding.

    Uncompiled, a gated MLP saves the output of its activation too. Ranks of a tensor-parallel
    group gather the logits. The root unit gathers embedding and output projection together.
    """
    program = replace(
        fsdp2(), activation_copies=1.0, whole_logits=True, split_loss_bytes=0.0, root_bytes=2.0
    )
    return replace(program, replicated=autocast(program, norm_copies=1.0))


def autocast(program: ProgramMemory, norm_copies: float) -> ProgramMemory:
    """Return ``program`` under DDP with autocast.

    Weights and residual stream are fp32 and each product casts its input. The casts of weights
    are kept until the backward pass.
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
