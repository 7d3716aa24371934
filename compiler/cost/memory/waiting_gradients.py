"""Whole gradients on a rank before their reduction, as far as they increase the memory peak."""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple

from parc.compiler.cost.memory.micro_batches import logits_bytes, micro_batch_activation_bytes
from parc.compiler.cost.memory.states import (
    HALF_WEIGHT,
    gathered_weight_bytes,
    keeps_root_gathered,
    largest_layer_gradients,
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

    For FSDP2, these are all bytes of ``_unit_bytes``. The result is 0 for programs that free whole
    gradients at once.
    """
    if program.reduced_bytes:
        if layout.zero_stage < 2 or layout.pp > 1:
            return 0.0
        if layout.dp_shard * layout.cp == 1:
            return _single_rank_bytes(cost_model, layout, load, stage, program).all_streams
        return _unit_bytes(cost_model, layout, load, stage, program)
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
    trained = largest_layer_gradients(cost_model, layout, load)
    reduced = program.reduced_bytes * max(_root_gradients(program, root), trained) / shards
    reduced *= _accumulates_gradients(cost_model, layout)
    if layout.pp > 1:
        reduced = _pipeline_gradient_bytes(cost_model, layout, load, program)
    if shards == 1:
        # A single rank gathers nothing, and its shard can be part of the peak of all streams.
        if layout.pp > 1:
            return reduced
        increase = _single_rank_bytes(cost_model, layout, load, stage, program)
        return reduced + increase.compute_stream - increase.all_streams
    before = max(root, layer * (load.layers > 1))
    gathered = HALF_GRADIENT * max(root * (1 + 1 / shards), before + layer * (1 + 1 / shards))
    return gathered + reduced


def _pipeline_gradient_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of a rank's reduced gradients, which exist after the last micro-batch.

    A pipeline accumulates whole gradients until then, which are not in the stream of reductions.
    """
    dense, expert = cost_model.trained_stage_parameters(layout, load)
    shards, expert_shards = layout.optimizer_shards
    return program.reduced_bytes * (dense / shards + expert / expert_shards)


def _root_parameters(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the parameters of the largest FSDP unit with vocabulary matrices."""
    tables = table_parameters(cost_model, layout, load)
    return tables if program.root_bytes or not _is_untied(cost_model, load) else tables / 2


def _root_gradients(program: ProgramMemory, parameters: float) -> float:
    """Return the gradients of ``parameters`` of vocabulary matrices, which LoRA never trains."""
    return 0.0 if program.frozen is not None else parameters


def _is_untied(cost_model: CostModel, load: StageContents) -> bool:
    """Return True if a stage has both vocabulary matrices."""
    return load.embedding and load.loss > 0 and not cost_model.problem.model.tied_embeddings


def _unit_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> float:
    """Return the bytes of gathered units and of their gradients at FSDP2's memory peak.

    They are counted in addition to ``gathered_weight_bytes``, to saved activations, and to the
    larger of logits and working set. The result is the largest of these moments of a step:
    - the loss, with the weights of the output projection;
    - the backward pass of the output projection, with its weights and gradients, when only the
      16-bit gradients of the logits are left;
    - the backward pass of a layer, with the weights and gradients of the layer;
    - the reductions of the first and of the last unit.
    """
    kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, program)
    logits = logits_bytes(cost_model, layout, load, program)
    layer = largest_layer_parameters(cost_model, layout, load)
    head = load.loss * _head_parameters(cost_model, layout, load)
    trained = largest_layer_gradients(cost_model, layout, load)
    head_gradients = HALF_GRADIENT * _root_gradients(program, head)
    in_root = keeps_root_gathered(cost_model, load, program)
    weights = HALF_WEIGHT * (layout.zero_stage == 3)
    # The root unit of both tables stays gathered, and reduces its gradients last.
    own = 0.0 if in_root else (program.head_unit_bytes or weights) * head
    waits = head_gradients * in_root
    gradient = logits * LOGIT_GRADIENT / program.loss_bytes / program.loss_parts
    moments = (
        logits + own,
        gradient + max(own, weights * head * (not in_root) + head_gradients),
        working + weights * layer + HALF_GRADIENT * trained + waits,
        *(each - kept for each in _reductions(cost_model, layout, load, program, kept)),
    )
    return max(0.0, max(moments) - max(logits, working))


def _reductions(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory, kept: float
) -> tuple[float, float]:
    """Return the bytes of activations and units when FSDP2 reduces the first and the last unit.

    FSDP2 frees the weights of a unit, copies its 16-bit gradients into one fp32 tensor, and frees
    them (torch.distributed.fsdp, _fsdp_collectives.py, foreach_reduce). The last unit contains
    vocabulary matrices. Bytes of ``gathered_weight_bytes`` are not included. ``kept`` is the number
    of bytes that the layers save.
    """
    layer = largest_layer_parameters(cost_model, layout, load)
    root = _root_gradients(program, _root_parameters(cost_model, layout, load, program))
    shard = program.reduced_bytes / (layout.dp_shard * layout.cp)
    shard *= _accumulates_gradients(cost_model, layout)
    each = program.reduced_bytes + max(HALF_GRADIENT, shard)
    first = _without_last_layer(kept, load)
    if layout.zero_stage == 3:
        # The weights of the layer before are gathered.
        first += HALF_WEIGHT * layer * (load.layers > 1)
    if keeps_root_gathered(cost_model, load, program):
        head = _head_parameters(cost_model, layout, load)
        first += HALF_GRADIENT * _root_gradients(program, head)
    root_weights = gathered_weight_bytes(cost_model, layout, load, program)
    trained = largest_layer_gradients(cost_model, layout, load)
    return first + each * trained, each * root - root_weights


def _head_parameters(cost_model: CostModel, layout: Layout, load: StageContents) -> float:
    """Return the parameters of the output projection, which may be the embedding."""
    tables = table_parameters(cost_model, layout, load)
    return tables / 2 if _is_untied(cost_model, load) else tables


def _accumulates_gradients(cost_model: CostModel, layout: Layout) -> bool:
    """Return True if reduced gradients are added to those of earlier micro-batches."""
    return layout.micro_batches(cost_model.problem.job.global_batch) > 1


def _without_last_layer(kept: float, load: StageContents) -> float:
    """Return ``kept``, the bytes that the layers save, after the backward pass of the last layer.

    FSDP2 reduces the first unit then.
    """
    return kept * (1 - 1 / load.layers) if load.layers else 0.0


class _PeakIncrease(NamedTuple):
    """Bytes by which a reduction on a single rank increases FSDP2's memory peak."""

    all_streams: float
    compute_stream: float
    """The same without the new tensor of reduced gradients, which is allocated in a separate
    stream."""


def _single_rank_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> _PeakIncrease:
    """Return the bytes by which a reduction on a single rank increases FSDP2's memory peak."""
    kept, working = micro_batch_activation_bytes(cost_model, layout, load, stage, program)
    logits = logits_bytes(cost_model, layout, load, program)
    layer = largest_layer_parameters(cost_model, layout, load)
    root = _root_parameters(cost_model, layout, load, program)
    first = _without_last_layer(kept, load)
    if layout.zero_stage == 3:
        # The weights of the layer before are gathered, and those of the root if it has both tables.
        first += HALF_WEIGHT * (layer * (load.layers > 1) + root * bool(program.root_bytes))
    if program.root_bytes:
        head = _head_parameters(cost_model, layout, load)
        first += HALF_GRADIENT * _root_gradients(program, head)
    peak = kept + max(logits, working)
    trained = largest_layer_gradients(cost_model, layout, load)
    root = _root_gradients(program, root)
    shard = program.reduced_bytes * _accumulates_gradients(cost_model, layout)
    return _PeakIncrease(
        *(
            max(0.0, first + each * trained - peak, each * root - peak)
            for each in (
                program.reduced_bytes + max(HALF_GRADIENT, shard),
                program.reduced_bytes + HALF_GRADIENT,
            )
        )
    )
