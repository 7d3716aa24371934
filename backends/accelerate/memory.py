"""Memory models of the transformers Llama that Accelerate trains."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.torch.memory import ddp_autocast_memory, emitted_decoder_memory
from parc.compiler.ir import ProgramMemory


def accelerate_memory() -> ProgramMemory:
    """Return the memory model of the program that PARC emits for Accelerate, under FSDP2.

    The field ``replicated`` of the result is the memory model of the same program under DDP.
    """
    program = replace(
        _with_transformers_decoder(emitted_decoder_memory()), name="accelerate", replicated=None
    )
    return replace(program, replicated=ddp_autocast_memory(program, norm_copies=2.0))


def deepspeed_plugin_memory(deepspeed: ProgramMemory) -> ProgramMemory:
    """Return the memory model of Accelerate's program when DeepSpeed trains the model.

    ``deepspeed`` is the memory model of the program that PARC emits for DeepSpeed alone.
    """
    return replace(
        _with_transformers_decoder(deepspeed), name="accelerate deepspeed", repeats_keys=False
    )


def _with_transformers_decoder(program: ProgramMemory) -> ProgramMemory:
    """Return ``program`` with the saved activations of the decoder in the library transformers.

    Each norm saves its input as an fp32 copy and its result in 16 bits. The 16-bit logits are freed
    before the backward pass of the loss, because no operator reads them again.
    """
    return replace(program, norm_copies=3.0, loss_bytes=12.0, head_input_bytes=8.0)
