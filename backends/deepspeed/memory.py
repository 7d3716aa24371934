"""Memory model of programs that train with DeepSpeed's ZeRO."""

from __future__ import annotations

from dataclasses import replace

from parc.backends.deepspeed.rules.program import emitted_program
from parc.backends.shared.torch.memory import (
    with_transformers_attention,
    with_transformers_decoder,
)
from parc.compiler.ir import Problem, ProgramMemory, StateBytes

BUCKET_BYTES = 1e9
"""Bytes of a bucket of gradients: by default 5e8 elements of 16 bit. ZeRO-2 has two of them, if
reductions overlap with the backward pass (stage_1_and_2.py, setup_buckets), and ZeRO-3 has one
(stage3.py). The bucket of ZeRO-1 has 32-bit elements. No stage has a buffer for all-gathers."""
SUB_GROUP_PARAMETERS = 1e9
"""Parameters that ZeRO-3 updates at a time: default of sub_group_size."""
LIVE_PARAMETERS = 1e9
"""Parameters that ZeRO-3 keeps gathered: default of stage3_max_live_parameters and of
stage3_max_reuse_distance."""


def deepspeed_memory_model(problem: Problem) -> ProgramMemory:
    """Return the memory model of the program that PARC emits for DeepSpeed.

    The loss is torch's cross-entropy, as in the FSDP2 program.
    """
    decoder = deepspeed_decoder_memory(problem.job.precision, problem.job.gradient_bytes)
    if emitted_program(problem) == "transformers":
        program = replace(with_transformers_decoder(decoder), repeats_keys=False)
        return with_transformers_attention(program, problem.model)
    return decoder


def deepspeed_zero_memory(precision: str, gradient_bytes: float = 4.0) -> ProgramMemory:
    """Return the memory model of a program that trains with DeepSpeed's ZeRO.

    The model states are 16-bit weights and gradients, and fp32 master weights, gradients and two
    Adam moments. For bf16, the fp32 gradients are not sharded, unless ``gradient_bytes`` is 2.
    Otherwise each rank copies its shard of the gradients to fp32 for the optimizer step alone
    (stage_1_and_2.py, step), which ZeRO-3 updates in parts (stage3.py, step).
    """
    # In bf16, every rank accumulates all fp32 gradients.
    accumulates = precision == "bf16" and gradient_bytes > 2
    shared = StateBytes(2.0, 2.0, 12.0, step=4.0)
    state = StateBytes(2.0, 6.0, 12.0) if accumulates else shared
    return ProgramMemory(
        name="deepspeed",
        gathers_again=True,
        state=state,
        live_parameters=LIVE_PARAMETERS,
        workspace_bytes=BUCKET_BYTES,
        second_bucket_bytes=BUCKET_BYTES,
        step_parameters=SUB_GROUP_PARAMETERS,
    )


def deepspeed_decoder_memory(precision: str, gradient_bytes: float) -> ProgramMemory:
    """Return the memory model of the emitted decoder under DeepSpeed.

    The program repeats keys and values for grouped queries, and uses torch's cross-entropy.
    """
    return replace(
        deepspeed_zero_memory(precision, gradient_bytes),
        activation_copies=1.0,
        repeats_keys=True,
        # Bytes per logit at the peak, the same value as for the FSDP2 program.
        loss_bytes=14.0,
    )
