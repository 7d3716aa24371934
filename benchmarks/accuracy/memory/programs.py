"""Memory models of the programs that produced the published readings."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from parc.backends.deepspeed.memory import deepspeed_zero_memory
from parc.backends.megatron.memory import (
    FUSED_LOSS_BYTES,
    OVERLAP_STREAMS,
    low_precision_weight_memory,
    megatron_memory,
    transformer_engine_workspace_bytes,
    with_bf16_moments,
    with_gradient_bytes,
)
from parc.backends.shared.torch.memory import fsdp2_memory, with_transformers_decoder
from parc.backends.torchtitan.memory import torchtitan_memory
from parc.compiler.ir import Generation, Layout, Model, ProgramMemory, StateBytes

NANOTRON_FRAGMENTATION = 0.01
"""Fraction of the bytes of activations and logits that torch's allocator loses in nanotron. Fitted
to the 19 pairs of reserved and allocated bytes of its sweep of July 2024."""
ENGINE_LOSS_BYTES = 2.0
"""Bytes per logit of TransformerEngine's fused loss (``--cross-entropy-fusion-impl te``): until
version 2.17, the gradient replaces the 16-bit logits in the forward pass and is saved for the
backward pass (triton/cross_entropy.py). Megatron's own fused loss needs ``FUSED_LOSS_BYTES``."""
KEPT_LOGITS_BYTES = 18.0
"""Bytes per logit of prime-rl in January 2026 (commit 11d87ee8, trainer/sft/train.py). The variable
``out`` keeps the fp32 logits (4) during the backward pass, in which log-softmax (4) and two
gradients (4 + 4) are in memory. torch has also reserved the 16-bit logits (2)."""
COMPILED_SPLIT_BYTES = 4.0
"""Bytes per logit that the loss of a split vocabulary saves if it is compiled: of three fp32
tensors of its backward pass, two remain."""
HALF_LOSS_BYTES = 8.0
"""Bytes per logit of ``cross_entropy`` on 16-bit logits that a variable keeps during the backward
pass: logits, log-softmax, and the gradients of both, in 16 bits each."""
FAMILIES = {
    "fp8_parameters": "megatron",
    "fsdp2": "torch",
    "torchtitan": "torch",
    "torchtitan_2024": "torch",
    "bf16_adam": "torch",
    "automodel": "torch",
    "kempnerforge": "torch",
    "litgpt": "torch",
}
"""Program -> name of the memory model that it shares with other programs, if it shares one."""


SWITCHES: dict[str, dict[str, Any]] = {
    "separate_gradients": {"placeholder_bytes": 0.0},
    # torchtitan saves all-to-alls since September 2025, those of Qwen3 later.
    "recomputed_exchanges": {"saves_exchanges": False},
    # torchtitan from October 29, 2025 (commit 2a7a1484) compiles the modules of a layer with
    # experts one by one, inside the recomputation.
    "compiled_modules": {"saves_products": False},
    # nanotron before July 17, 2024, which added tp_recompute_allgather (commit 1e02a9ce).
    "saved_gathers": {"gathers_again": False},
    # Without memory_efficient_linear of DeepSpeed, autograd keeps a view of each gathered weight.
    "kept_weights": {"live_parameters": inf},
    # sub_group_size of 1e12, as in PyTorch Lightning's strategy for DeepSpeed.
    "whole_step": {"step_parameters": 0.0},
    "fused_squared_relu": {"weighted_copies": 0.0},
}
"""Deviation -> fields of the memory model that it sets."""


def nanotron() -> ProgramMemory:
    """Return the memory model of Nanotron.

    It adds the 16-bit gradients of a backward pass to fp32 gradients (gradient_accumulator.py) and
    does not fuse activations. Its loss stores fp32 logits and the softmax, which becomes their
    gradient in place (tensor_parallel/functional.py, _ShardedCrossEntropy).
    """
    return ProgramMemory(
        name="nanotron",
        state=StateBytes(2.0, 6.0, 12.0),
        fused_norms=True,
        gathers_again=True,
        activation_copies=1.0,
        loss_bytes=8.0,
        workspace_bytes=64.0 * 2**20,
        fragmentation=NANOTRON_FRAGMENTATION,
    )


def with_copies(program: ProgramMemory, model: Model, layout: Layout) -> ProgramMemory:
    """Return ``program`` with the copies that the attention of nanotron and LitGPT makes.

    Other programs are returned as they are (nanotron, models/llama.py; litgpt/model.py).

    In LitGPT, values without grouped queries are a view of one tensor of unrotated queries, keys
    and values, which stays allocated.

    In nanotron, without grouped queries, queries, keys and values are copied to one tensor. Flash
    attention's rotary embedding rotates the queries in place, so that the unrotated keys and values
    in this tensor stay allocated. Keys and values are copied again to the layout of the rotary
    kernel.

    Flash attention writes (batch, sequence) but the output projection reads (sequence, batch), so
    that it copies the attention output if the micro-batch has several sequences.
    """
    if program.name not in ("nanotron", "litgpt"):
        return program
    attention = model.attention
    rotated = 1.0 if attention.heads == attention.kv_heads else 0.0
    program = replace(program, rotary_copies=rotated)
    if program.name == "litgpt":
        return program
    return replace(
        program,
        output_copies=1.0 if layout.micro_batch > 1 else 0.0,
    )


def torchtitan_2024() -> ProgramMemory:
    """Return the memory model of torchtitan from December 2024 to March 2025.

    Embedding, final norm and output projection are in the root FSDP unit (parallelize_llama.py,
    apply_fsdp). The 16-bit logits are freed before the backward pass (train.py, ``del pred``), but
    the fp32 gradient of the logits does not fit into their place, so that torch reserves 14 bytes
    per logit although 12 are allocated.
    """
    return replace(fsdp2_memory(), name="torchtitan 2024", root_bytes=2.0)


def bf16_adam() -> ProgramMemory:
    """Return the memory model of torchtune's full fine-tuning on one GPU.

    Weights, gradients and both moments of Adam are bf16 (torchtune README, "optimization flags").
    The gradients are freed after each step, so that they grow while activations shrink
    (recipes/full_finetune_single_device.py). Keys and values are copied to every query head
    (modules/attention.py).
    """
    return ProgramMemory(
        name="bf16_adam",
        state=StateBytes(2.0, 0.0, 4.0, step=2.0),
        repeats_keys=True,
        gathers_again=True,
        activation_copies=1.0,
        rotary_copies=1.0,
        loss_bytes=14.0,
        workspace_bytes=64.0 * 2**20,
    )


def automodel() -> ProgramMemory:
    """Return the memory model of NeMo AutoModel's fine-tuning.

    Weights, gradients and both moments of Adam are bf16. Liger kernels fuse norms and activations;
    the loss is torch's, on logits in fp32 (components/loss/masked_ce.py).
    """
    return replace(fsdp2_memory(), name="automodel", state=StateBytes(2.0, 2.0, 4.0))


def kempnerforge() -> ProgramMemory:
    """Return the memory model of KempnerForge of April 2026.

    Weights, both moments of Adam and sharded gradients are bf16 (scripts/train.py). Gradients are
    reduced in fp32 after the last micro-batch (training/grad.py, distributed/parallel.py).
    Tensor-parallel ranks gather the logits and replicate the embedding
    (distributed/tensor_parallel.py). The loss computes in bf16: logits, log-softmax and the
    gradients of both.
    """
    return replace(
        fsdp2_memory(),
        name="kempnerforge",
        state=StateBytes(2.0, 2.0, 4.0, gathered=2.0, unreduced=4.0),
        loss_bytes=HALF_LOSS_BYTES,
        split_loss_bytes=0.0,
        whole_logits=True,
        whole_embedding=True,
        root_bytes=2.0,
    )


def litgpt() -> ProgramMemory:
    """Return the memory model of LitGPT, compiled, and of lightning-thunder's benchmark of it.

    Weights, gradients and both moments of Adam are bf16, and so is the loss. Keys and values are
    copied to every query head. Bytes of saved tensors were read from autograd (litgpt/model.py,
    torch 2.13).
    """
    return replace(
        fsdp2_memory(),
        name="litgpt",
        state=StateBytes(2.0, 2.0, 4.0, gathered=2.0),
        reduced_bytes=2.0,
        repeats_keys=True,
        loss_bytes=HALF_LOSS_BYTES,
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


def eager(program: ProgramMemory) -> ProgramMemory:
    """Return ``program`` without compilation: each operator saves its own inputs.

    Until March 2025, torchtitan's RMSNorm computed in fp32 operator by operator (models/norms.py).
    LitGPT's also saves its result in fp32.
    """
    copies = {"torchtitan 2024": 3.0, "litgpt": 4.0}
    norm_copies = copies.get(program.name, program.norm_copies)
    return replace(program, last_product=True, activation_copies=1.0, norm_copies=norm_copies)


def family_of(text: str) -> str:
    """Return the name of the memory model behind the program and deviations ``text``."""
    name = text.split()[0]
    return FAMILIES.get(name, name)


def program_of(text: str, precision: str, generation: Generation) -> ProgramMemory:
    """Return the memory model for ``megatron unfused dropout fused_loss``: a program, then
    deviations."""
    name, *features = text.split()
    program = {
        "megatron": lambda: megatron_memory(precision, generation),
        "fp8_parameters": lambda: low_precision_weight_memory(precision, generation),
        "deepspeed": lambda: deepspeed_zero_memory(precision),
        "fsdp2": fsdp2_memory,
        "torchtitan": torchtitan_memory,
        "torchtitan_2024": torchtitan_2024,
        "nanotron": nanotron,
        "bf16_adam": bf16_adam,
        "automodel": automodel,
        "kempnerforge": kempnerforge,
        "litgpt": litgpt,
    }[name]()
    program = _with_loss(_with_workspaces(program, features, generation), features)
    if "unfused" in features:
        program = unfused(program)
    if "eager" in features:
        program = eager(program)
    if "transformers" in features:
        program = replace(with_transformers_decoder(program), activation_copies=1.0)
    program = _with_state(program, features, precision)
    # ``compiled_layers``: the loss runs uncompiled, as in torchtitan until April 2025.
    if "compiled" in features or "compiled_layers" in features:
        program = replace(
            program, activation_copies=0.0, rotary_copies=0.0, last_product="eager" in features
        )
    for feature in features:
        program = replace(program, **SWITCHES.get(feature, {}))
        if feature.startswith("bucket:"):
            # reduce_bucket_size of DeepSpeed, in elements of 16 bit.
            size = 2.0 * float(feature.removeprefix("bucket:"))
            program = replace(program, workspace_bytes=size, second_bucket_bytes=size)
    dropout = "dropout" in features
    return replace(program, attention_dropout=dropout, hidden_dropout=dropout)


def _with_state(program: ProgramMemory, features: list[str], precision: str) -> ProgramMemory:
    """Return ``program`` with the bytes per parameter that ``features`` imply."""
    if "fp8_gathered" in features:
        # enable_fsdp_float8_all_gather: a pipeline keeps gathered weights in 8 bits.
        program = replace(program, state=replace(program.state, gathered=1.0))
    if "bf16_gradients" in features:
        program = with_gradient_bytes(program, 2.0)
    if "bf16_moments" in features:
        program = with_bf16_moments(program, precision)
    if "no_transposes" in features:
        # disable_parameter_transpose_cache: 8-bit weights are transposed when they are used.
        program = replace(program, state=replace(program.state, weight=1.0))
    return program


def _with_workspaces(
    program: ProgramMemory, features: list[str], generation: Generation
) -> ProgramMemory:
    """Return ``program`` with the library workspaces that ``features`` imply."""
    engine = transformer_engine_workspace_bytes(generation)
    if "sequential" in features or "local" in features:
        # Without --moe-grouped-gemm each expert is multiplied by a separate GEMM.
        program = replace(program, grouped_workspace_bytes=0.0)
    if "local" in features:
        # Megatron's own layers need no workspace of TransformerEngine.
        workspace = program.workspace_bytes - engine
        program = replace(program, workspace_bytes=workspace, fused_norms=False)
    if "tp_overlap" in features:
        workspace = program.workspace_bytes + OVERLAP_STREAMS * engine
        program = replace(program, workspace_bytes=workspace)
    return program


def _with_loss(program: ProgramMemory, features: list[str]) -> ProgramMemory:
    """Return ``program`` with the bytes per logit that ``features`` imply."""
    if "engine_loss" in features:
        return replace(program, loss_bytes=ENGINE_LOSS_BYTES, loss_kept_bytes=ENGINE_LOSS_BYTES)
    loss = program.loss_bytes
    if "fused_loss" in features or "copied_logits" in features:
        # ``copied_logits``: until 2023, Megatron's loss wrote fp32 logits without their maximum to
        # a new tensor (tensor_parallel/cross_entropy.py).
        loss = FUSED_LOSS_BYTES
    elif "chunked_loss" in features:
        # torchtune computes the 16-bit logits of all eight parts before the first part of the loss;
        # the gradient of a part replaces its logits (modules/loss/ce_chunked_output_loss.py).
        loss = 2.0 + 2.0 / 8
    elif "kept_logits" in features:
        loss = KEPT_LOGITS_BYTES
    elif "float_logits" in features:
        # torchtune's model returns fp32 logits (modules/transformer.py), so that the compiled loss
        # stores them and their fp32 gradient.
        loss = 8.0
    elif "compiled" in features or "compiled_loss" in features:
        # The compiled loss stores 16-bit logits and their gradient. If the vocabulary is split, the
        # compiled sum and product of the gradient (torch.distributed.tensor.parallel.loss) need
        # neither the softmax nor the sum.
        loss = 4.0
        if program.split_loss_bytes:
            split = program.split_loss_bytes - COMPILED_SPLIT_BYTES
            program = replace(program, split_loss_bytes=split)
    return replace(program, loss_bytes=loss)
