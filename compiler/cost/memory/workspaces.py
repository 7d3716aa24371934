"""What stays in torch's allocator between two steps beside parameters and their state."""

from __future__ import annotations

from parc.compiler.cost.memory.runtime import Runtime
from parc.compiler.cost.memory.weight_shapes import weight_shapes
from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.setup.stages import StageLoad
from parc.compiler.ir import Layout


def stream_bytes(pricing: Pricing, layout: Layout) -> float:
    """The residual stream of one micro-batch in 16 bit: 2Th, over tp with sequence parallelism."""
    problem = pricing.problem
    tokens = layout.tokens(problem.job.sequence_length)
    return 2 * tokens * problem.model.hidden / (layout.tp if layout.sequence_parallel else 1)


def handovers(pp: int, vpp: int) -> int:
    """Residual streams of one micro-batch that wait between stages.

    The input and the output gradient of every virtual stage, held between sends: 2v of 2Th.
    Counted in Megatron's functional-test records, to the byte at v = 3 and v = 8.
    """
    return 2 * vpp if pp > 1 else 0


def handover_bytes(pricing: Pricing, layout: Layout) -> float:
    """Bytes of the streams that wait between stages."""
    return handovers(layout.pp, layout.vpp) * stream_bytes(pricing, layout)


def library_bytes(pricing: Pricing, runtime: Runtime) -> float:
    """Workspaces of matrix libraries; routed experts are multiplied on streams of their own."""
    grouped = runtime.grouped_workspace_bytes if pricing.problem.model.experts is not None else 0.0
    return runtime.workspace_bytes + grouped


def head_buffer_bytes(pricing: Pricing, layout: Layout, runtime: Runtime) -> float:
    """The whole input of the output projection under sequence parallelism: 2Th, beside the loss.

    Megatron gathers it into a buffer that it keeps (tensor_parallel/layers.py,
    get_global_memory_buffer).
    """
    if not (runtime.keeps_head_input and layout.sequence_parallel):
        return 0.0
    return stream_bytes(pricing, layout) * layout.tp


def placeholder_bytes(pricing: Pricing, layout: Layout, load: StageLoad, runtime: Runtime) -> float:
    """Gradients that stand in for those that a GEMM has added to their sum: one of each shape.

    Autograd must be given a tensor; TransformerEngine keeps one for every distinct shape
    (pytorch/module/base.py, get_dummy_wgrad), as does Megatron's output projection.
    """
    if not runtime.placeholder_bytes:
        return 0.0
    model = pricing.problem.model
    vocab = pricing.framework.padded_vocab(model, layout.tp)
    shapes = weight_shapes(model, layout, load, vocab)
    return runtime.placeholder_bytes * sum(rows * columns for rows, columns in shapes)
