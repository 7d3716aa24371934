"""Whole gradients on a rank before their reduction, as far as they increase the memory peak."""

from __future__ import annotations

from math import ceil, floor

from parc.compiler.cost.memory.micro_batches import logits_bytes, micro_batch_activation_bytes
from parc.compiler.cost.memory.states import (
    gathered_weight_bytes,
    largest_layer_parameters,
    table_gradients,
    table_parameters,
    unreduced_gradient_bytes,
)
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents
from parc.compiler.ir import Layout, ProgramMemory

LOGIT_GRADIENT = 2.0
"""Bytes per logit of the gradient that the loss passes to the output projection."""
HALF_GRADIENT = 2.0
"""Bytes per parameter of the gradients that FSDP2's backward pass computes."""


def waiting_gradient_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> float:
    """Return the bytes by which whole gradients that wait for their reduction increase the peak.

    The result is 0 for programs that free whole gradients at once.
    """
    if program.reduced_bytes:
        return _reduction_bytes(cost_model, layout, load, stage, program)[0]
    queue = unreduced_gradient_bytes(cost_model, layout, load, program)
    if not queue:
        return 0.0
    # The queue is empty before a backward pass and after it (Megatron-FSDP, megatron_fsdp.py,
    # _root_post_backward), and fills while the pass frees logits and the activations of layers. In
    # the backward pass of the k-th layer, the gradients of k layers wait at most, and k - 1 layers
    # are freed. The sum is largest at the first layer, at the last one, or when the queue is full.
    kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, program)
    logits = logits_bytes(cost_model, layout, load, program)
    each = program.state.gradient * largest_layer_parameters(cost_model, layout, load)
    tables = program.state.gradient * table_gradients(cost_model, layout, load, program)
    layers = ceil(load.layers / layout.vpp)
    if layers == 0 or each == 0.0:
        return queue
    full = (queue - tables) / each
    counts = {min(max(count, 1), layers) for count in (1, floor(full), ceil(full), layers)}
    freed = kept / load.layers
    layer_peak = max(min(queue, tables + n * each) - (n - 1) * freed for n in counts)
    # Gradients of the output projection are computed from the 16-bit gradients of the logits, when
    # the loss has freed everything else (tensor_parallel/cross_entropy.py).
    head = load.loss * program.state.gradient * table_parameters(cost_model, layout, load)
    if load.embedding and not cost_model.problem.model.tied_embeddings:
        head /= 2
    head_peak = min(queue, max(head, tables)) - logits * (1 - LOGIT_GRADIENT / program.loss_bytes)
    return max(0.0, layer_peak - max(logits - working, 0.0), head_peak - max(working - logits, 0.0))


def stream_pool_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> float:
    """Return the reserved bytes that only the other streams of FSDP2 can use.

    The caching allocator gives memory that one stream has freed to no other stream, so that the
    peaks of all streams add up. FSDP2 gathers weights in one stream (foreach_all_gather: 16-bit
    copies of the rank's shards and the gathered unit, which is freed when the next one has
    arrived), and allocates reduced gradients in another one.
    """
    if not program.reduced_bytes or layout.zero_stage < 2:
        return 0.0
    shards = layout.dp_shard * layout.cp
    layer = largest_layer_parameters(cost_model, layout, load)
    root = _root_parameters(cost_model, layout, load, program)
    # The rank's shard of reduced gradients, until it is added to those of earlier micro-batches.
    again = layout.micro_batches(cost_model.problem.job.global_batch) > 1
    reduced = program.reduced_bytes * max(root, layer) / shards * again
    if shards == 1:
        # A single rank gathers nothing, and its shard can be part of the peak of all streams.
        peak, own = _reduction_bytes(cost_model, layout, load, stage, program)
        return reduced + own - peak
    before = max(root, layer * (load.layers > 1))
    gathered = HALF_GRADIENT * max(root * (1 + 1 / shards), before + layer * (1 + 1 / shards))
    return gathered + reduced


def _root_parameters(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the parameters of the largest FSDP unit with vocabulary matrices."""
    tables = table_parameters(cost_model, layout, load)
    return tables if program.root_bytes or not _is_untied(cost_model, load) else tables / 2


def _is_untied(cost_model: CostModel, load: StageContents) -> bool:
    """Return True if a stage has both vocabulary matrices."""
    return load.embedding and load.loss > 0 and not cost_model.problem.model.tied_embeddings


def _reduction_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> tuple[float, float]:
    """Return the bytes by which the reduction of an FSDP unit's gradients increases the peak.

    FSDP2 frees the weights of a unit, copies its 16-bit gradients into one fp32 tensor, frees them,
    and reduces the tensor into a new one, which it adds to the gradients of earlier micro-batches
    (torch.distributed.fsdp, _fsdp_collectives.py, foreach_reduce). The peak is at the first unit of
    the backward pass, or at the last one, which contains the vocabulary matrices. The second result
    is the same without the new tensor, which is allocated in a stream of its own.
    """
    if layout.zero_stage < 2 or layout.pp > 1:
        return 0.0, 0.0
    kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, program)
    logits = logits_bytes(cost_model, layout, load, program)
    gathered = gathered_weight_bytes(cost_model, layout, load, program)
    layer = largest_layer_parameters(cost_model, layout, load)
    tables = table_parameters(cost_model, layout, load)
    root = _root_parameters(cost_model, layout, load, program)
    first = kept * (1 - 1 / load.layers) if load.layers else 0.0
    if layout.zero_stage == 3:
        # The weights of the layer before are gathered, and those of the root if it has both tables.
        first += HALF_GRADIENT * (layer * (load.layers > 1) + root * bool(program.root_bytes))
    if program.root_bytes:
        first += HALF_GRADIENT * (tables / 2 if _is_untied(cost_model, load) else tables)
    peak = kept + max(logits, working) + gathered
    again = layout.micro_batches(cost_model.problem.job.global_batch) > 1
    shard = program.reduced_bytes / (layout.dp_shard * layout.cp) * again
    with_shard, without = (
        max(0.0, first + each * layer - peak, each * root - peak)
        for each in (
            program.reduced_bytes + max(HALF_GRADIENT, shard),
            program.reduced_bytes + HALF_GRADIENT,
        )
    )
    return with_shard, without
