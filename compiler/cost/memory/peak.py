"""Peak memory of one rank of each pipeline stage, by term."""

from __future__ import annotations

from parc.compiler.cost.memory.micro_batches import activation_bytes, logits_bytes
from parc.compiler.cost.memory.states import (
    gathered_weight_bytes,
    low_precision_copy_bytes,
    optimizer_step_peak_bytes,
    weight_gradient_optimizer_bytes,
)
from parc.compiler.cost.memory.waiting_gradients import (
    stream_pool_bytes,
    waiting_gradient_bytes,
)
from parc.compiler.cost.memory.workspaces import (
    communicator_bytes,
    constant_workspace_bytes,
    graph_bytes,
    output_projection_buffer_bytes,
    placeholder_gradient_bytes,
    shared_weight_buffer_bytes,
)
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents
from parc.compiler.ir import Layout, ProgramMemory, StageMemory
from parc.compiler.ir.estimate import DYNAMIC_SPREAD, FRAGMENTATION_SPREAD, STATIC_SPREAD
from parc.compiler.ir.frozen import frozen

StaticBytes = tuple[float, float, float, float, float, float]
"""Bytes of (weights, gradients, optimizer state, low-precision copies, gathered weights,
placeholder gradients) on one rank."""


@frozen
class MemoryEnd:
    """Point of the interval of the memory estimate, as factors of the terms."""

    others: float
    """Factor of all bytes except weights, gradients, optimizer state, activations and logits."""
    fragmentation: float
    """Factor of the expected fragmentation."""
    static: float
    """Factor of weights, gradients and optimizer state without fragmentation."""

    def states(self, program: ProgramMemory) -> float:
        """Return the factor of weights, gradients and optimizer state, fragmentation included."""
        return self.static + self.fragmentation * program.static_fragmentation

    def activations(self, program: ProgramMemory) -> float:
        """Return the factor of activations and logits, fragmentation included."""
        return self.others + self.fragmentation * program.fragmentation


EXPECTED = MemoryEnd(1.0, 1.0, 1.0)
HIGH = MemoryEnd(1 + DYNAMIC_SPREAD, FRAGMENTATION_SPREAD, 1 + STATIC_SPREAD)
"""High end of the interval, equal to ``StageMemory.high_bytes``."""


def memory_model_at_zero_stage(cost_model: CostModel, zero_stage: int) -> ProgramMemory:
    """Return the memory model of the framework's program at ZeRO stage ``zero_stage``."""

    def build_program_memory() -> ProgramMemory:
        """Build the memory model of the framework's program; the caller caches the result."""
        program = cost_model.framework.training_memory_model(cost_model.problem)
        return program.for_zero_stage(zero_stage)

    return cost_model.cached(("program", zero_stage), build_program_memory)


def _cached_static_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> StaticBytes:
    """Return the bytes on one rank of a stage that do not depend on the micro-batch size.

    The order is the same as in ``StaticBytes``. The result is computed once for all layouts with
    equal inputs.
    """
    mesh = (layout.tp, layout.cp, layout.ep, layout.etp, layout.pp, layout.vpp)
    kept = (layout.zero_stage, layout.offload, layout.zero_plus.hpz)
    shards = (layout.dp_replicate, layout.dp_shard, layout.gtp, layout.egtp, *kept)

    def compute_static_bytes() -> StaticBytes:
        """Compute the bytes that do not depend on the micro-batch size.

        The caller caches the result.
        """
        return (
            *weight_gradient_optimizer_bytes(cost_model, layout, load, program),
            low_precision_copy_bytes(cost_model, layout, load, program),
            gathered_weight_bytes(cost_model, layout, load, program)
            + shared_weight_buffer_bytes(cost_model, layout, load),
            placeholder_gradient_bytes(cost_model, layout, load, program),
        )

    return cost_model.cached(("static", mesh, shards, load, program.name), compute_static_bytes)


def _dynamic_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, stage: int, program: ProgramMemory
) -> tuple[float, float, float, float]:
    """Return the bytes of (activations, logits, waiting gradients, optimizer step).

    The first three exist together when forward and backward pass need most memory.
    """
    # Logits and the working set of a layer peak at different times, because the backward pass of
    # the loss precedes that of all layers. The optimizer step runs after activations, logits and
    # whole gradients are freed.
    kept, working = activation_bytes(cost_model, layout, load, stage, program)
    logits = logits_bytes(cost_model, layout, load, program) if load.loss else 0.0
    waiting = waiting_gradient_bytes(cost_model, layout, load, stage, program)
    step = optimizer_step_peak_bytes(cost_model, layout, load, program)
    return kept + max(working - logits, 0.0), logits, waiting, step


def communicator_and_context_bytes(cost_model: CostModel, layout: Layout) -> tuple[float, float]:
    """Return (bytes of communicators, bytes of the driver context).

    Neither is allocated by torch's allocator.
    """
    context = cost_model.problem.cluster.generation.driver_context_mb * 1e6
    return communicator_bytes(cost_model.problem, layout), context


def stage_memory(
    cost_model: CostModel,
    layout: Layout,
    load: StageContents,
    stage: int,
    program: ProgramMemory | None = None,
) -> StageMemory:
    """Return the memory of one rank of a pipeline stage, by term.

    ``program`` is the memory model of the training program. If it is None, the memory model of the
    framework's own program is used.
    """
    program = program or memory_model_at_zero_stage(cost_model, layout.zero_stage)
    weights, gradients, optimizer, casts, gathered, kept = _cached_static_bytes(
        cost_model, layout, load, program
    )
    activations, logits, waiting, step = _dynamic_bytes(cost_model, layout, load, stage, program)
    factor, states = EXPECTED.activations(program), EXPECTED.states(program)
    if factor * step > factor * (activations + logits) + states * waiting:
        # The part of the optimizer step that logits do not cover is counted as activations.
        activations, waiting = step - logits, 0.0
    if program.reduced_bytes:
        gathered += waiting
    else:
        gradients += waiting
    pools = stream_pool_bytes(cost_model, layout, load, stage, program)
    workspace = constant_workspace_bytes(cost_model, layout, program)
    workspace += kept + load.loss * output_projection_buffer_bytes(cost_model, layout, program)
    workspace += graph_bytes(cost_model, layout, load)
    communicators, context = communicator_and_context_bytes(cost_model, layout)
    return StageMemory(
        stage=stage,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        communication_bytes=communicators,
        framework_bytes=context,
        fragmentation_bytes=program.fragmentation * (activations + logits)
        + program.static_fragmentation * (weights + gradients + optimizer)
        + pools,
        casts_bytes=casts,
        gathered_bytes=gathered,
        workspace_bytes=workspace,
    )


def peak_stage(cost_model: CostModel, layout: Layout) -> StageMemory:
    """Return the memory of the pipeline stage with the highest peak.

    If several stages have the same peak, the result is the first of these stages.
    """
    stages = [
        stage_memory(cost_model, layout, each.load, each.first)
        for each in cost_model.equal_stage_groups(layout.split)
    ]
    return max(stages, key=lambda stage: stage.total_bytes)


def peak_bytes(cost_model: CostModel, layout: Layout, end: MemoryEnd = EXPECTED) -> float:
    """Return the memory peak in bytes of the pipeline stage with the highest peak.

    ``end`` selects the expected value or the high end of its interval. The search calls this
    function instead of ``peak_stage`` because it is faster.
    """
    program = memory_model_at_zero_stage(cost_model, layout.zero_stage)
    factor, states, most = end.activations(program), end.states(program), 0.0
    for each in cost_model.equal_stage_groups(layout.split):
        activations, logits, waiting, step = _dynamic_bytes(
            cost_model, layout, each.load, each.first, program
        )
        dynamic = max(factor * (activations + logits) + states * waiting, factor * step)
        dynamic += end.fragmentation * stream_pool_bytes(
            cost_model, layout, each.load, each.first, program
        )
        weights, gradients, optimizer, *others = _cached_static_bytes(
            cost_model, layout, each.load, program
        )
        uncertain = sum(others)
        uncertain += each.load.loss * output_projection_buffer_bytes(cost_model, layout, program)
        uncertain += graph_bytes(cost_model, layout, each.load)
        static = states * (weights + gradients + optimizer)
        most = max(most, static + end.others * uncertain + dynamic)
    # Terms that are equal on all stages are added after the maximum, once per layout.
    equal = constant_workspace_bytes(cost_model, layout, program)
    return most + end.others * (equal + sum(communicator_and_context_bytes(cost_model, layout)))


def memory_of_all_stages(cost_model: CostModel, layout: Layout) -> tuple[StageMemory, ...]:
    """Return the memory of one rank of each pipeline stage, by term."""
    loads = cost_model.all_stage_contents(layout.split)
    return tuple(stage_memory(cost_model, layout, load, stage) for stage, load in enumerate(loads))
