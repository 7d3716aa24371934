"""Buffers that stay in torch's allocator between steps, besides parameters and their state."""

from __future__ import annotations

from parc.compiler.cost.memory.weight_shapes import weight_shapes
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.setup.stages import StageLoad
from parc.compiler.ir import Layout, ProgramMemory


def stream_bytes(pricing: Pricing, layout: Layout) -> float:
    """Return the bytes of one micro-batch's residual stream on one rank, in 16 bit.

    2Th, divided by tp with sequence parallelism.
    """
    problem = pricing.problem
    tokens = layout.tokens(problem.job.sequence_length)
    return 2 * tokens * problem.model.hidden / (layout.tp if layout.sequence_parallel else 1)


def stage_buffers(pp: int, vpp: int) -> int:
    """Return the number of residual streams of one micro-batch that are kept between stages.

    The input and the output gradient of each virtual stage stay allocated between sends: 2v of 2Th.
    Counted in Megatron's functional-test records, to the byte at v = 3 and v = 8.
    """
    return 2 * vpp if pp > 1 else 0


def stage_buffer_bytes(pricing: Pricing, layout: Layout) -> float:
    """Return the bytes of the residual streams that are kept between stages."""
    return stage_buffers(layout.pp, layout.vpp) * stream_bytes(pricing, layout)


def library_bytes(pricing: Pricing, program: ProgramMemory) -> float:
    """Return the workspaces of matrix libraries; routed experts have additional streams."""
    grouped = program.grouped_workspace_bytes if pricing.problem.model.experts is not None else 0.0
    return program.workspace_bytes + grouped


def head_buffer_bytes(pricing: Pricing, layout: Layout, program: ProgramMemory) -> float:
    """Return the bytes of the head's gathered input under sequence parallelism: 2Th.

    Megatron gathers it into a buffer that it keeps (tensor_parallel/layers.py,
    get_global_memory_buffer).
    """
    if not (program.keeps_head_input and layout.sequence_parallel):
        return 0.0
    return stream_bytes(pricing, layout) * layout.tp


def placeholder_bytes(
    pricing: Pricing, layout: Layout, load: StageLoad, program: ProgramMemory
) -> float:
    """Return the bytes of placeholder gradients, one for each distinct shape of a weight.

    Autograd requires a tensor even if a GEMM has added the gradient to its sum. TransformerEngine
    keeps one for each distinct shape (pytorch/module/base.py, get_dummy_wgrad), as does Megatron's
    output projection.
    """
    if not program.placeholder_bytes:
        return 0.0
    model = pricing.problem.model
    vocab = pricing.framework.padded_vocab(model, layout.tp)
    shapes = weight_shapes(model, layout, load, vocab)
    return program.placeholder_bytes * sum(rows * columns for rows, columns in shapes)
