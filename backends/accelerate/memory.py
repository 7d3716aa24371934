"""Memory models of the transformers Llama that Accelerate trains."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.shared.torch.memory import transformers_memory, with_transformers_decoder
from parc.compiler.ir import ProgramMemory


def accelerate_memory() -> ProgramMemory:
    """Return the memory model of the program that PARC emits for Accelerate, under FSDP2.

    The field ``replicated`` of the result is the memory model of the same program under DDP. As
    Accelerate does not set ``gradient_as_bucket_view``, DDP's buckets are a second copy of the
    gradients (torch.nn.parallel.DistributedDataParallel, documentation of that argument).
    """
    program = replace(transformers_memory(), name="accelerate", saves_frozen=True)
    copied = program.for_zero_stage(0)
    state = replace(copied.state, gradient=2 * copied.state.gradient)
    return replace(program, replicated=replace(copied, state=state))


def deepspeed_plugin_memory(deepspeed: ProgramMemory) -> ProgramMemory:
    """Return the memory model of Accelerate's program when DeepSpeed trains the model.

    ``deepspeed`` is the memory model of the program that PARC emits for DeepSpeed alone.
    """
    return replace(
        with_transformers_decoder(deepspeed), name="accelerate deepspeed", repeats_keys=False
    )
