"""Bytes of weights, gradients and optimizer state on a rank, and of copies of the weights."""

from __future__ import annotations

from math import ceil

from parc.compiler.cost.counts.params import extra_params
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents
from parc.compiler.ir import Layout, ProgramMemory, StateBytes

HALF_WEIGHT = 2.0
"""Bytes per parameter of a weight that FSDP2 has gathered in 16 bits."""


def weight_gradient_optimizer_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> tuple[float, float, float]:
    """Return the bytes of (weights, gradients, optimizer state) on one rank of a pipeline stage.

    In bf16, Megatron needs 18 bytes per parameter without the distributed optimizer. With the
    distributed optimizer, a dense parameter needs 6 + 12/(dp cp) bytes and an expert parameter 6 +
    12/edp, where edp is the data-parallel size of the experts (Megatron-LM docs,
    dist_optimizer.md).
    """
    # Only ranks over which one copy of the optimizer state is sharded divide the bytes: with hybrid
    # sharding or several optimizer instances, dp_shard replaces dp.
    trained = cost_model.trained_stage_parameters(layout, load)
    weights, gradients, optimizer = _state_bytes(layout, program.state, trained)
    weights += table_excess_bytes(cost_model, layout, load, program)
    if layout.zero_stage >= 2 and accumulates_whole_gradients(cost_model, layout, program):
        gradients = program.state.unreduced * sum(trained)
    weights += frozen_weight_bytes(cost_model, layout, load, program)
    return weights, gradients, optimizer


def frozen_weight_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of weights without gradients on one rank of a stage; 0 without LoRA."""
    if program.frozen is None:
        return 0.0
    return _state_bytes(layout, program.frozen, cost_model.stage_parameters(layout, load))[0]


def _state_bytes(
    layout: Layout, state: StateBytes, parameters: tuple[float, float]
) -> tuple[float, float, float]:
    """Return the bytes of (weights, gradients, optimizer state) of ``parameters`` on one rank.

    ``parameters`` is (number of dense parameters, number of routed-expert parameters).
    """
    dense, expert = parameters
    shards, expert_shards = layout.optimizer_shards
    stage, kept = layout.zero_stage, (layout.pp > 1, layout.offload, layout.zero_plus.hpz)
    first = state.bytes_on_rank(stage, shards, *kept)
    second = state.bytes_on_rank(stage, expert_shards, *kept) if expert else first
    weights, gradients, optimizer = (
        dense * ours + expert * theirs for ours, theirs in zip(first, second, strict=True)
    )
    return weights, gradients, optimizer


def accumulates_whole_gradients(
    cost_model: CostModel, layout: Layout, program: ProgramMemory
) -> bool:
    """Return True if ranks keep whole gradients until the last micro-batch of a step.

    They replace the sharded gradients, which exist only after the reduction.
    """
    several = layout.micro_batches(cost_model.problem.job.global_batch) > 1
    return program.state.unreduced > 0 and several


def unreduced_gradient_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of whole gradients that wait for their reduction at ZeRO-2 and 3.

    The gradients that were reduced last, and those that are being computed, are counted in addition
    to ``ProgramMemory.waiting_gradients``. The result is the largest number during a backward pass,
    before and after which it is 0.
    """
    if layout.zero_stage < 2 or not program.waiting_gradients:
        return 0.0
    shards = layout.dp_shard * layout.cp, layout.edp // layout.dp_replicate
    parts = zip(cost_model.stage_parameters(layout, load), shards, strict=True)
    # A chunk reduces all its gradients before another chunk of the stage computes its own.
    whole = sum(part for part, ranks in parts if ranks > 1) / layout.vpp
    bucket = _bucket_parameters(layout, program)
    if layout.zero_stage == 3:
        largest = largest_layer_parameters(cost_model, layout, load)
        most = max(program.waiting_gradients, 2 * largest) + 2 * largest
        most += table_gradients(cost_model, layout, load, program)
    elif program.buckets_first_stage_only and not load.embedding:
        most = whole
    else:
        most = max(program.waiting_gradients, bucket) + 2 * bucket
    return program.state.gradient * min(whole, most)


def _bucket_parameters(layout: Layout, program: ProgramMemory) -> float:
    """Return the number of gradients that are reduced together."""
    least, per_rank = program.bucket_parameters
    return max(least, per_rank * layout.dp_shard * layout.cp)


def table_gradients(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the number of gradients of vocabulary matrices that ZeRO-3 stores besides layers.

    The gradients of the embedding are the last ones. Those of the output projection wait for them
    if both are in one bucket.
    """
    if not load.embedding:
        return 0.0
    bucket = _bucket_parameters(layout, program)
    largest = largest_layer_parameters(cost_model, layout, load)
    tables = table_parameters(cost_model, layout, load)
    separate = load.loss and not cost_model.problem.model.tied_embeddings
    each = tables / 2 if separate else tables
    return tables if separate and each < bucket else max(each - largest, 0.0)


def largest_layer_parameters(cost_model: CostModel, layout: Layout, load: StageContents) -> float:
    """Return the number of parameters on a rank of the largest layer of a stage.

    LoRA adapters are included.
    """
    kinds = load.layers_by_kind(cost_model.problem.model)
    sizes = (
        sum(cost_model.layer_parameters(kind, layout)) + cost_model.adapter_parameters(kind)
        for kind in kinds
    )
    return max(sizes, default=0.0)


def largest_layer_gradients(cost_model: CostModel, layout: Layout, load: StageContents) -> float:
    """Return the largest number of gradients on a rank of one layer of a stage."""
    kinds = load.layers_by_kind(cost_model.problem.model)
    sizes = (sum(cost_model.trained_layer_parameters(kind, layout)) for kind in kinds)
    return max(sizes, default=0.0)


def table_excess_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes by which embedding and output projection exceed ``StateBytes.weight``.

    The result is 0 if both are stored in the format of all other weights, and under ZeRO-3, where
    the sharded difference is small.
    """
    state = program.state
    if state.table is None or layout.zero_stage >= 3:
        return 0.0
    return (state.table - state.weight) * table_parameters(cost_model, layout, load)


def table_parameters(cost_model: CostModel, layout: Layout, load: StageContents) -> float:
    """Return the number of parameters of embedding and output projection that a rank stores."""
    model = cost_model.problem.model
    rows = cost_model.framework.padded_vocab(cost_model.problem, layout.tp)
    # Stages without the embedding have their own copy of a tied output projection.
    tables = load.embedding + (load.loss and (not model.tied_embeddings or layout.pp > 1))
    return tables * rows * model.hidden / (layout.tp * layout.gtp)


def gathered_weight_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of gathered weights on one rank under ZeRO-3; 0 at other ZeRO stages.

    For FSDP2, these are the weights that stay gathered for the whole step. ``waiting_gradients``
    counts the units that are gathered at the memory peak. For other programs, the result is the
    largest of three sums:
    - the current layer and the prefetched layers, and the vocabulary matrices if they stay
      gathered;
    - one layer and the vocabulary matrices of the stage;
    - the layers that DeepSpeed keeps gathered for reuse.
    """
    split = layout.dp_shard * layout.cp > 1 or layout.offload.parameters != "none"
    if layout.zero_stage < 3 or not split:
        return 0.0
    # With a pipeline, some programs keep all weights gathered; these count as weights.
    if layout.pp > 1 and program.state.gathered:
        return 0.0
    if program.reduced_bytes and layout.dp_shard * layout.cp > 1:
        return _root_unit_bytes(cost_model, layout, load, program)
    largest = largest_layer_parameters(cost_model, layout, load)
    table = cost_model.framework.padded_vocab(cost_model.problem, layout.tp)
    model, unit = cost_model.problem.model, program.unit_bytes
    ends = table * model.hidden / layout.tp if load.loss or load.embedding else 0.0
    # Other tables next to the embedding or the output, such as per-layer embeddings.
    extra = load.embedding * extra_params(model, "embedding")
    extra += load.loss * extra_params(model, "output")
    live = min(program.live_parameters, sum(cost_model.stage_parameters(layout, load)))
    head = (program.head_unit_bytes or unit) * (ends + extra)
    if load.loss and load.embedding and not model.tied_embeddings:
        head += program.root_bytes * ends * cost_model.embedding_copies(layout.tp)
    if program.keeps_tables_gathered:
        tables = table_parameters(cost_model, layout, load) + extra
        return unit * (_gathered_layers(program, layout, load, largest) * largest + tables)
    # ``live``: parameters that DeepSpeed keeps gathered for reuse (max_live_parameters).
    return max(unit * program.gathered_units * largest, unit * largest + head, unit * live)


def keeps_root_gathered(cost_model: CostModel, load: StageContents, program: ProgramMemory) -> bool:
    """Return True if embedding and output projection are in FSDP2's root unit.

    The root unit stays gathered from the forward to the backward pass. Tied matrices are one
    parameter, which both ends of the model need.
    """
    both = load.embedding and load.loss > 0
    return both and (program.root_bytes > 0 or cost_model.problem.model.tied_embeddings)


def _root_unit_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of the gathered weights of FSDP2's root unit, if it has the tables."""
    if not keeps_root_gathered(cost_model, load, program):
        return 0.0
    model = cost_model.problem.model
    table = cost_model.framework.padded_vocab(cost_model.problem, layout.tp) * model.hidden
    extra = extra_params(model, "embedding") + extra_params(model, "output")
    weights = HALF_WEIGHT * (table / layout.tp + extra)
    if not model.tied_embeddings:
        weights += program.root_bytes * table / layout.tp * cost_model.embedding_copies(layout.tp)
    return weights


def _gathered_layers(
    program: ProgramMemory, layout: Layout, load: StageContents, largest: float
) -> float:
    """Return the number of layers with ``largest`` parameters that are gathered at a time."""
    if not program.prefetched_parameters or not largest:
        return program.gathered_units
    ahead = ceil(max(program.prefetched_parameters, largest) / largest)
    return min(1 + ahead, ceil(load.layers / layout.vpp))


def low_precision_copy_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of low-precision copies of the weights of a stage's linear layers.

    The embedding has no copy. The output projection has a copy only if the program casts it
    (``casts_head``). Under ZeRO-3 the result is 0 if weights are quantized when they are gathered.
    """
    if not program.state.cast or (layout.zero_stage >= 3 and not program.keeps_casts):
        return 0.0
    if program.frozen is not None:
        # Frozen weights are stored in 16 bit; only adapters are converted.
        return program.state.cast * sum(cost_model.trained_stage_parameters(layout, load))
    dense, expert = cost_model.stage_parameters(layout, load)
    # Vocabulary matrices are not cast, unless configured.
    uncast = table_parameters(cost_model, layout, load)
    if load.loss and program.state.casts_head:
        model = cost_model.problem.model
        rows = cost_model.framework.padded_vocab(cost_model.problem, layout.tp)
        uncast -= rows * model.hidden / (layout.tp * layout.gtp)
    return program.state.cast * max(dense + expert - uncast, 0.0)


def optimizer_step_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of the fp32 copies that the optimizer step makes of 16-bit gradients.

    At ZeRO-3, they may be those of a part of the parameters.
    """
    if not program.state.step or layout.offload.optimizer != "none":
        return 0.0
    dense, expert = cost_model.trained_stage_parameters(layout, load)
    shards = expert_shards = 1
    if layout.zero_stage:
        shards, expert_shards = layout.optimizer_shards
    copied = dense / shards + expert / expert_shards
    if layout.zero_stage >= 3 and program.step_parameters:
        copied = min(copied, program.step_parameters)
    return program.state.step * copied


def optimizer_step_peak_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of ``optimizer_step_bytes`` that do not replace gathered weights.

    DeepSpeed frees all gathered weights before the step (stage3.py, step).
    """
    copies = optimizer_step_bytes(cost_model, layout, load, program)
    if not copies or not program.live_parameters:
        return copies
    return max(copies - gathered_weight_bytes(cost_model, layout, load, program), 0.0)
