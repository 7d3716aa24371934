"""Memory models of the transformers Llama that Accelerate trains."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.torch.memory import ddp_autocast_memory, emitted_decoder_memory
from parc.compiler.ir import ProgramMemory


def accelerate_memory() -> ProgramMemory:
    """Return the memory model under FSDP2; its field ``replicated`` is the model under DDP."""
    program = replace(
        _with_transformers_decoder(emitted_decoder_memory()), name="accelerate", replicated=None
    )
    return replace(program, replicated=ddp_autocast_memory(program, norm_copies=2.0))


def deepspeed_plugin_memory(deepspeed: ProgramMemory) -> ProgramMemory:
    """Return the memory model under DeepSpeed, derived from that of DeepSpeed's own program."""
    return replace(
        _with_transformers_decoder(deepspeed), name="accelerate deepspeed", repeats_keys=False
    )


def _with_transformers_decoder(program: ProgramMemory) -> ProgramMemory:
    """Return ``program`` with the activations that the decoder of transformers saves.

    A norm saves an fp32 copy of its input and a 16-bit result. The 16-bit logits are freed before
    the backward pass of the loss, because no operator reads them again.
    """
    return replace(program, norm_copies=3.0, loss_bytes=12.0, head_input_bytes=8.0)
