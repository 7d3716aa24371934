"""Memory model of Megatron-Core with TransformerEngine and the flags that PARC emits.

Sources: Megatron-LM docs, dist_optimizer.md (bf16 6 + 12/d bytes per parameter, fp16 4 + 16/d);
Megatron-LM's functional-test records for workspaces and cached casts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from parc.backends.megatron.programs import has_fused_attention
from parc.compiler.ir import Generation, Job, Problem, ProgramMemory, StateBytes

BLOCK_BYTES = 512
"""Smallest block of torch's caching allocator, in bytes."""
GROUPED_STREAMS = 4
"""Number of CUDA streams of TransformerEngine's grouped GEMM, each with a workspace (gemm.py)."""
SCALARS = 7
"""Number of one-element tensors that Megatron keeps; each occupies a block of the allocator."""
FRAGMENTATION = 0.05
"""Fraction of allocated memory that torch's allocator reserves in addition. Model verification
cards of Megatron-Bridge state both counters: reserved bytes exceed allocated ones by 2 to 7 % in 8
of 11 runs, by 11 to 21 % in the others. PARC starts Megatron with expandable segments, as these
runs."""
GRADIENT_COPY_BYTES = 4.0
"""Bytes per 16-bit gradient of the fp32 copy that the optimizer reads."""
SAVED_BYTES = {"fp8": 1.0, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
"""Precision -> bytes per element of the quantized input that a linear layer saves, including block
scales."""

SENT_BYTES = {"fp8": 1.0, "mxfp8": 2.0, "nvfp4": 0.5}
"""Precision -> bytes per weight that ranks gather if weights are stored in the precision. Weights
in mxfp8 have two quantized copies, so that their 16-bit values are gathered. Scales are not sent,
because ranks reduce the maxima that determine them (Megatron-LM, param_and_grad_buffer.py)."""
BLOCKWISE_COPIES, BLOCKWISE_SAVED_BYTES = 2.0, 1.0 + 4 / 128
"""Bytes per weight of the two fp8 copies with blockwise scales, and bytes per element of a saved
input with one fp32 scale per 128 elements (TransformerEngine, float8_blockwise_tensor.py)."""
FUSED_LOSS_BYTES = 10.0
"""Bytes per logit of the fused loss: the compiled kernels keep fp32 logits, their exponentials and
the 16-bit logits (fused_cross_entropy.py)."""
OVERLAP_STREAMS = 3
"""Streams of TransformerEngine's GEMMs that overlap tensor-parallel communication. Besides its own
workspace TransformerEngine allocates one that all of them share (cpp_extensions/gemm.py,
_NUM_MAX_UB_STREAMS)."""
GATHERING_BUFFERS, SCATTERING_BUFFERS = 8, 4
"""Number of user buffers of ``--tp-comm-overlap`` by type of collective. Each has the size of a
micro-batch's gathered hidden states (TransformerEngine, pytorch/module/base.py, initialize_ub)."""


COMMUNICATION_UNIT = 1e9
"""Megatron-FSDP's default of ``--suggested-communication-unit-size``, in elements: gradients may
wait for their reduction until they exceed it, and weights of half as many elements are gathered
ahead (megatron_fsdp.py, _init_fsdp_param_and_grad_buffer)."""
BUCKET_PARAMETERS = (40e6, 1e6)
"""Megatron's default size of a bucket: the larger of the first number, and of the second times the
data-parallel size (distributed_data_parallel_config.py, bucket_size)."""


def user_buffer_bytes(precision: str) -> float:
    """Return the bytes of all user buffers per element of a micro-batch's hidden states.

    Gathered values have 8 bits if the operands of matrix multiplications do.
    """
    gathered = 1.0 if precision in ("fp8", "mxfp8") else 2.0
    return GATHERING_BUFFERS * gathered + SCATTERING_BUFFERS * 2.0


def megatron_memory_model(problem: Problem) -> ProgramMemory:
    """Return the memory model of the job.

    With the distributed optimizer, jobs in low precision may store their weights in it.
    """
    program = _memory_of_job(problem, megatron_memory)
    if not stores_low_precision_weights(problem.job):
        return replace(program, fully_sharded=fsdp_memory(program))
    stored = _memory_of_job(problem, low_precision_weight_memory)
    # The buffers of Megatron-FSDP have no format for weights in nvfp4.
    sharded = fsdp_memory(program if problem.job.precision == "nvfp4" else stored)
    return replace(stored, replicated=program, fully_sharded=sharded)


def fsdp_memory(program: ProgramMemory) -> ProgramMemory:
    """Return the memory model of ``program`` with Megatron-FSDP, which shards more than ZeRO-1.

    Only transformer layers free their gathered weights. TransformerEngine caches weights that it
    quantizes for the whole step; weights that are stored in low precision are gathered as they are.
    """
    state = program.state
    stored = state.weight if state.table is not None else 2.0
    return replace(
        program,
        name=f"{program.name}, sharded",
        unit_bytes=stored,
        prefetched_parameters=COMMUNICATION_UNIT / 2,
        keeps_tables_gathered=True,
        keeps_casts=True,
        waiting_gradients=COMMUNICATION_UNIT,
        bucket_parameters=BUCKET_PARAMETERS,
        buckets_first_stage_only=True,
    )


def stores_low_precision_weights(job: Job) -> bool:
    """Return True if the distributed optimizer keeps and gathers weights in low precision.

    As in Megatron-Bridge (mixed_precision.py), fp8 with blockwise scales keeps 16-bit weights. So
    does nvfp4 with bf16 moments, because the precision-aware optimizer has no shard of a weight in
    nvfp4 (distrib_optimizer.py, _build_model_and_main_param_groups).
    """
    if job.precision == "fp8":
        return job.fp8_recipe != "blockwise"
    return job.precision == "mxfp8" or (job.precision == "nvfp4" and job.moment_precision == "fp32")


def _memory_of_job(
    problem: Problem, build: Callable[[str, Generation], ProgramMemory]
) -> ProgramMemory:
    """Return the memory model ``build(precision, generation)`` with the settings of the job."""
    precision, generation = problem.job.precision, problem.cluster.generation
    gradients = problem.job.gradient_bytes
    program = with_gradient_bytes(build(precision, generation), gradients)
    program = replace(program, fused_attention=has_fused_attention(problem))
    if precision == "fp8" and problem.job.fp8_recipe == "blockwise":
        state = replace(program.state, cast=BLOCKWISE_COPIES)
        program = replace(program, state=state, saved_bytes=BLOCKWISE_SAVED_BYTES)
    if problem.job.moment_precision == "bf16":
        program = with_bf16_moments(program, precision)
    if problem.job.fused_loss:
        program = replace(program, loss_bytes=FUSED_LOSS_BYTES)
    if problem.job.tp_overlap:
        streams = OVERLAP_STREAMS * transformer_engine_workspace_bytes(generation)
        program = replace(
            program,
            workspace_bytes=program.workspace_bytes + streams,
            overlap_buffer_bytes=user_buffer_bytes(precision),
        )
    return program


def megatron_memory(precision: str, generation: Generation) -> ProgramMemory:
    """Return the memory model of Megatron with fp32 gradients, fused attention and unfused loss."""
    state = StateBytes(2.0, 4.0, 12.0, low_precision_copy_bytes(precision, generation))
    # fp16: Megatron's 4 + 16/d bytes include the fp32 copies of the gradients, which exist from the
    # optimizer step to the next forward pass.
    if precision == "fp16":
        state = StateBytes(2.0, 2.0, 12.0, step=GRADIENT_COPY_BYTES)
    return ProgramMemory(
        name="megatron",
        state=state,
        saved_bytes=SAVED_BYTES.get(precision, 2.0),
        fused_norms=True,
        gathers_again=True,
        workspace_bytes=workspace_bytes(generation),
        grouped_workspace_bytes=GROUPED_STREAMS * transformer_engine_workspace_bytes(generation),
        placeholder_bytes=2.0,
        keeps_head_input=True,
        fragmentation=FRAGMENTATION,
        static_fragmentation=FRAGMENTATION,
    )


def low_precision_weight_memory(precision: str, generation: Generation) -> ProgramMemory:
    """Return the memory model of Megatron with ``--fp8-param-gather`` or ``--fp4-param-gather``.

    The weights are stored only in the low precision, without a 16-bit copy. The buffer from which
    16-bit weights of mxfp8 are gathered is that of the gradients
    (``--reuse-grad-buf-for-mxfp8-param-ag``).
    """
    state = low_precision_state_bytes(precision, generation)
    return replace(
        megatron_memory(precision, generation), name="megatron low-precision weights", state=state
    )


def low_precision_state_bytes(precision: str, generation: Generation) -> StateBytes:
    """Return the bytes per parameter of all model states with weights in low precision.

    The fp32 master weights are sharded with the optimizer state. Embedding and output projection
    keep 16 bits, because only linear layers of TransformerEngine have other weights.
    """
    # In fp8, a weight takes at least one byte; on some GPUs TransformerEngine also keeps a
    # transposed copy (Generation.fp8_cast_bytes).
    copies = low_precision_copy_bytes(precision, generation)
    return StateBytes(max(copies, 1.0), 4.0, 12.0, table=2.0, sent=SENT_BYTES[precision])


def low_precision_copy_bytes(precision: str, generation: Generation) -> float:
    """Return the bytes per weight that TransformerEngine caches in low precision during a step.

    Formats with block scales need two copies of a weight, one scaled along rows and one along
    columns.
    """
    if precision == "fp8":
        return generation.fp8_cast_bytes
    return 2 * SAVED_BYTES[precision] if precision in SAVED_BYTES else 0.0


def workspace_bytes(generation: Generation) -> float:
    """Return the bytes of scalar tensors and of the workspaces of cuBLAS and TransformerEngine.

    cuBLAS has one workspace for the forward thread and one for the backward thread. In the records
    of Megatron's functional tests, memory exceeds the parameters by exactly these bytes.
    """
    # cuBLAS allocates one workspace per host thread, and torch runs the backward pass in a second
    # one.
    libraries = 2 * generation.matmul_workspace_kib * 1024
    return libraries + transformer_engine_workspace_bytes(generation) + SCALARS * BLOCK_BYTES


def transformer_engine_workspace_bytes(generation: Generation) -> float:
    """Return the bytes of TransformerEngine's workspace for one CUDA stream."""
    return generation.transformer_engine_workspace_kib * 1024


def with_gradient_bytes(program: ProgramMemory, gradient_bytes: float) -> ProgramMemory:
    """Return a copy of ``program`` with ``gradient_bytes`` bytes per gradient element.

    For 16-bit gradients, the copy also includes the memory of the optimizer step. In this step the
    optimizer copies the gradients to fp32 (distrib_optimizer.py, _copy_model_grads_to_main_grads),
    and frees the copies before the next forward pass (zero_grad).
    """
    step = GRADIENT_COPY_BYTES if gradient_bytes < 4 else 0.0
    return replace(program, state=replace(program.state, gradient=gradient_bytes, step=step))


def with_bf16_moments(program: ProgramMemory, precision: str) -> ProgramMemory:
    """Return a copy of ``program`` whose optimizer stores both moments in bf16.

    TransformerEngine's FusedAdam reads 16-bit gradients without a copy (distrib_optimizer.py,
    use_precision_aware_optimizer_no_fp8_or_ds_fp8). With bf16 weights it also stores only the other
    16 bits of each master weight (store_param_remainders). Megatron itself keeps the fp32 master
    weights of scaled 8-bit formats.
    """
    state = program.state
    if precision in ("fp8", "mxfp8"):
        return replace(program, state=replace(state, optimizer=state.optimizer - 4.0))
    fewer = 4.0 if precision == "fp16" else 6.0
    return replace(program, state=replace(state, optimizer=state.optimizer - fewer, step=0.0))
