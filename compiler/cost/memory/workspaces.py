"""Buffers in addition to parameters, their state, and the activations that each layer computes.

They stay allocated between steps, except keys and values gathered from other ranks.
"""

from __future__ import annotations

from parc.compiler.cost.counts.launches import captured_launches, launch_facts
from parc.compiler.cost.kernels.recurrence import recurrence_of_layer
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents
from parc.compiler.ir import CapturedGraphs, LayerKind, Layout, Model, Problem, ProgramMemory

GRAPH_BUFFERS = 2
"""Buffers per layer and micro-batch in flight that CUDA graphs add, each with the size of the
residual stream: a graph has fixed buffers for its input, its output and the gradients of both
(pytorch/pytorch, issue 83490). Without graphs, the input and the output are saved anyway."""
NODE_BYTES = 10e3
"""Device memory per kernel of a CUDA graph (NVIDIA/cccl, pull request 3768: about 10 KB)."""
INPUT_BYTES = 8 + 8 + 8 + 4
"""Bytes per token of the fixed input of a graph of a whole step: token, label and position in 64
bits, and the mask of the loss in 32 bits (Megatron-LM, full_cuda_graph.py, StaticBufferLoader)."""
COMMUNICATOR_BYTES = 0.6e9
"""Bytes of NCCL buffers per communicator in use: 544 MB for two ranks and 688 MB for three or four,
measured on A100 GPUs that NVLink connects (NVIDIA/nccl, issue 964)."""
PCIE_COMMUNICATOR_BYTES = 0.1e9
"""``COMMUNICATOR_BYTES`` without NVLink: the buffers are proportional to the number of channels,
and PCIe needs few (NVIDIA/nccl, issue 986); the value is assumed."""
COMMUNICATORS_PER_AXIS = 2
"""Communicators per mesh axis in use: one for the groups of the axis, and one for groups that span
several axes, such as all ranks or the ranks of one replica (Megatron-LM, parallel_state.py)."""
PEER_BYTES = 32 * 14 * 2.0**20
"""Bytes of NCCL buffers per NVLink peer of an all-to-all: 32 channels with one buffer of 10 MiB and
two of 2 MiB. Eight H100 allocate 3.28 GB for seven peers (NVIDIA/nccl, issue 1685)."""
WEIGHT_BUFFER_BYTES = 2.0
"""Bytes per weight of a buffer for gathered weights, in 16 bit or in 8 bit with two scalings."""
MEASURED_PEERS = 7
"""Largest number of NVLink peers of an all-to-all with measured buffers."""


def communicator_bytes(problem: Problem, layout: Layout) -> float:
    """Return the bytes of NCCL buffers on one rank.

    The all-to-all between experts connects each pair of ranks, so that its communicator has
    additional buffers per peer of the NVLink domain. DeepEP and HybridEP replace NCCL there.
    """
    degrees = (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep, layout.gtp, layout.egtp)
    node = problem.cluster.node
    each = PCIE_COMMUNICATOR_BYTES if node.link_kind == "pcie" else COMMUNICATOR_BYTES
    shared = COMMUNICATORS_PER_AXIS * sum(degree > 1 for degree in degrees) * each
    if node.link_kind != "nvlink" or problem.job.deduplicates_dispatch:
        return shared
    # The ranks of an expert are neighbors, so that they divide the NVLink domain.
    peers = min(layout.ep, max(node.nvlink_domain // layout.etp, 1)) - 1
    return shared + min(peers, MEASURED_PEERS) * PEER_BYTES


def residual_stream_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the 16-bit bytes of one micro-batch's residual stream on one rank.

    The result is 2 T h for T tokens and hidden size h. With sequence parallelism it is divided by
    tp.
    """
    problem = cost_model.problem
    tokens = layout.tokens(problem.job.sequence_length)
    return 2 * tokens * problem.model.hidden / (layout.tp if layout.sequence_parallel else 1)


def key_value_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the 16-bit bytes of keys and values that a rank computes per layer and micro-batch."""
    attention = cost_model.problem.model.attention
    if attention.latent is None:
        width = max(attention.kv_heads, layout.tp) * attention.head_dim / layout.tp
    else:
        latent = attention.latent
        query = latent.qk_nope_dim + latent.qk_rope_dim
        width = attention.heads * (query + latent.v_dim) / 2 / layout.tp
    return 4 * layout.tokens(cost_model.problem.job.sequence_length) * width


def gathered_key_value_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the bytes of other ranks' keys and values that a rank saves for the backward pass.

    The result is 0 unless context parallelism uses the gather variant.
    """
    if layout.cp == 1 or layout.cp_comm != "all_gather":
        return 0.0
    return (layout.cp - 1) * key_value_bytes(cost_model, layout)


def count_stage_buffers(pp: int, vpp: int) -> int:
    """Return the number of buffers that a pipeline rank keeps for messages between stages.

    Each of the ``vpp`` virtual stages has a buffer for its input and a buffer for the gradient of
    its output. A buffer has the size of the residual stream of one micro-batch.
    """
    # Megatron's functional-test records confirm the number, to the byte for vpp = 3 and 8.
    # Without pipeline parallelism nothing is sent, so that no buffer stays.
    return 2 * vpp if pp > 1 else 0


def stage_buffer_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the bytes of the buffers that a pipeline rank keeps allocated for messages."""
    return count_stage_buffers(layout.pp, layout.vpp) * residual_stream_bytes(cost_model, layout)


def library_workspace_bytes(cost_model: CostModel, program: ProgramMemory) -> float:
    """Return the workspace bytes of matrix libraries, including those for routed experts."""
    # TransformerEngine runs grouped GEMMs in several streams with one workspace each.
    grouped = (
        program.grouped_workspace_bytes if cost_model.problem.model.experts is not None else 0.0
    )
    return program.workspace_bytes + grouped


def overlap_buffer_bytes(cost_model: CostModel, layout: Layout, program: ProgramMemory) -> float:
    """Return the bytes of buffers in which collectives overlap with matrix multiplications.

    The result is 0 without tensor parallelism.
    """
    if layout.tp == 1 or not program.overlap_buffer_bytes:
        return 0.0
    problem = cost_model.problem
    hidden = layout.tokens(problem.job.sequence_length) * problem.model.hidden
    return program.overlap_buffer_bytes * hidden


def constant_workspace_bytes(
    cost_model: CostModel, layout: Layout, program: ProgramMemory
) -> float:
    """Return the bytes of workspaces and buffers that are equal on all pipeline stages."""
    buffers = stage_buffer_bytes(cost_model, layout)
    buffers += overlap_buffer_bytes(cost_model, layout, program)
    return library_workspace_bytes(cost_model, program) + buffers


def output_projection_buffer_bytes(
    cost_model: CostModel, layout: Layout, program: ProgramMemory
) -> float:
    """Return the bytes of the gathered input of the output projection under sequence parallelism.

    Megatron keeps this buffer of 2 T h bytes for T tokens and hidden size h
    (tensor_parallel/layers.py, get_global_memory_buffer). For programs without this buffer the
    result is 0.
    """
    if not (program.keeps_head_input and layout.sequence_parallel):
        return 0.0
    return residual_stream_bytes(cost_model, layout) * layout.tp


def graph_buffer_bytes(cost_model: CostModel, layout: Layout, kind: LayerKind) -> float:
    """Return the bytes of the buffers of one layer's CUDA graph, per micro-batch in flight.

    The result is 0 if no part of the layer is captured, and if one graph contains all layers: it
    passes tensors from layer to layer as the run without graphs does.
    """
    problem, graphs = cost_model.problem, cost_model.captured_graphs(layout)
    facts = launch_facts(problem.job, layout, problem.model)
    if not graphs.per_layer or not captured_launches(problem.model, kind, facts, graphs.parts):
        return 0.0
    return GRAPH_BUFFERS * residual_stream_bytes(cost_model, layout)


def graph_bytes(cost_model: CostModel, layout: Layout, load: StageContents) -> float:
    """Return the bytes that the CUDA graphs of a pipeline stage need besides activations.

    These are the kernels of the graphs, which the driver stores, and for a graph of a whole step
    its input: the sequences of all micro-batches. The activations of such a graph are as large as
    those without graphs, which ``torch.cuda.graph`` frees before the capture.
    """
    if not layout.cuda_graphs:
        return 0.0
    return bytes_of_graphs(cost_model, layout, load, cost_model.captured_graphs(layout))


def bytes_of_graphs(
    cost_model: CostModel, layout: Layout, load: StageContents, graphs: CapturedGraphs
) -> float:
    """Return the result of ``graph_bytes`` for ``graphs``, which are captured for ``layout``."""
    problem = cost_model.problem
    facts = launch_facts(problem.job, layout, problem.model)

    def launches_of_stage() -> float:
        """Compute the host launches that the graphs replace; the caller caches the result."""
        return sum(
            count * captured_launches(problem.model, kind, facts, graphs.parts)
            for kind, count in load.layers_by_kind(problem.model).items()
        )

    launches = cost_model.cached(("captured", load, facts, graphs.parts), launches_of_stage)
    # The backward pass has two kernels per kernel of the forward pass.
    nodes = 3 * launches * graphs.micro_batches
    if graphs.per_layer:
        return NODE_BYTES * nodes
    tokens = problem.job.sequence_length * layout.micro_batch * graphs.micro_batches
    return NODE_BYTES * nodes + INPUT_BYTES * tokens


def placeholder_gradient_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents, program: ProgramMemory
) -> float:
    """Return the bytes of placeholder gradients, one for each distinct shape of a weight.

    TransformerEngine allocates them (pytorch/module/base.py, get_dummy_wgrad). Megatron does the
    same for its output projection.
    """
    # Autograd requires a gradient tensor for a weight even if the GEMM has already added the
    # gradient to the accumulated gradient.
    if not program.placeholder_bytes:
        return 0.0
    model = cost_model.problem.model

    def elements_of_shapes() -> int:
        """Compute the elements of one weight per shape; the caller caches the result."""
        vocab = cost_model.framework.padded_vocab(cost_model.problem, layout.tp)
        return _elements(weight_shapes(model, layout, load, vocab))

    # The shapes depend on which modules a stage has, not on their number.
    modules = (*map(bool, load.counts), load.mtp_layers > 0, load.loss)
    key = ("placeholders", modules, layout.tp, layout.etp)
    # A placeholder has the size of the stored part of its weight.
    return program.placeholder_bytes * cost_model.cached(key, elements_of_shapes) / layout.gtp


def shared_weight_buffer_bytes(cost_model: CostModel, layout: Layout, load: StageContents) -> float:
    """Return the bytes of the buffers for weights that data-parallel ranks share.

    Weights of the same shape use one buffer for the gathered weight and one for its gradient before
    the reduction; each expert of a rank has its own. Experts are gathered one layer ahead, into two
    buffers (generalized_tensor_parallelism.py, _get_cache_key and get_wgrad_tensor).
    """
    model, gradient = cost_model.problem.model, cost_model.problem.job.gradient_bytes
    experts: WeightShapes = set()
    if model.experts is not None:
        experts = _mlp_weight_shapes(model, model.experts.size // layout.etp)
    vocab = cost_model.framework.padded_vocab(cost_model.problem, layout.tp)
    nbytes = 0.0
    if layout.gtp > 1:
        shapes = weight_shapes(model, layout, load, vocab) - experts
        if load.embedding:
            shapes.add((vocab // layout.tp, model.hidden))
        nbytes += (WEIGHT_BUFFER_BYTES + gradient * (1 + 1 / layout.gtp)) * _elements(shapes)
    if layout.egtp > 1 and model.experts is not None and load.routed_layers(model):
        each = 2 * WEIGHT_BUFFER_BYTES + gradient * (1 + 1 / layout.egtp)
        nbytes += each * model.experts.count / layout.ep * _elements(experts)
    return nbytes


def _elements(shapes: WeightShapes) -> int:
    return sum(rows * columns for rows, columns in shapes)


WeightShapes = set[tuple[int, int]]
"""Set of (rows, columns) of the weights of Megatron-Core's linear layers on one rank; rows are
outputs. Column-parallel layers are split by rows, row-parallel layers by columns. Router and norms
are not included, because they are not linear layers of TransformerEngine."""


def weight_shapes(model: Model, layout: Layout, load: StageContents, vocab: int) -> WeightShapes:
    """Return the distinct (rows, columns) shapes of the weights of a stage's linear layers.

    ``vocab`` is the vocabulary size including the framework's padding.
    """
    shapes: WeightShapes = set()
    for kind in load.layers_by_kind(model):
        shaped = model.with_shapes_of(kind)
        shapes |= _mixer_weight_shapes(shaped, kind, layout.tp)
        if kind.routed:
            shapes |= _expert_weight_shapes(shaped, layout)
        elif kind.mlp == "dense":
            shapes |= _mlp_weight_shapes(shaped, shaped.ffn.size // layout.tp)
    # The projection of a prediction layer joins hidden states and embeddings: 2 x hidden inputs.
    if load.mtp_layers:
        shapes.add((model.hidden // layout.tp, 2 * model.hidden))
    if load.loss:
        shapes.add((vocab // layout.tp, model.hidden))
    return shapes


def _mlp_weight_shapes(model: Model, width: int) -> WeightShapes:
    """Return the weight shapes of an MLP whose inner width on one rank is ``width``."""
    return {(2 * width if model.ffn.gated else width, model.hidden), (model.hidden, width)}


def _expert_weight_shapes(model: Model, layout: Layout) -> WeightShapes:
    """Return the weight shapes of routed and shared experts on one rank."""
    experts = model.experts
    assert experts is not None
    shapes = _mlp_weight_shapes(model, experts.size // layout.etp)
    return (
        shapes | _mlp_weight_shapes(model, experts.shared_size // layout.tp)
        if experts.shared_size
        else shapes
    )


def _mixer_weight_shapes(model: Model, kind: LayerKind, tp: int) -> WeightShapes:
    """Return the weight shapes of the token mixer of a layer on one of ``tp`` ranks."""
    attention = _attention_weight_shapes(model, tp) if kind.attends else set()
    part = recurrence_of_layer(model, kind)
    if part is None:
        return attention
    return attention | {(part.projected // tp, model.hidden), (model.hidden, part.inner // tp)}


def _attention_weight_shapes(model: Model, tp: int) -> WeightShapes:
    """Return the weight shapes of the attention projections on one of ``tp`` ranks."""
    attention, hidden = model.attention, model.hidden
    latent, heads = attention.latent, attention.heads // tp
    if latent is None:
        queries = attention.query_projection_heads * attention.head_dim
        fused = (queries + attention.key_value_projection_width) // tp
        return {(fused, hidden), (hidden, heads * attention.head_dim)}
    query = heads * (latent.qk_nope_dim + latent.qk_rope_dim)
    rank = latent.q_lora_rank or hidden
    return {
        (query, rank),
        (latent.kv_lora_rank + latent.qk_rope_dim, hidden),
        (heads * (latent.qk_nope_dim + latent.v_dim), latent.kv_lora_rank),
        (hidden, heads * latent.v_dim),
    } | ({(rank, hidden)} if latent.q_lora_rank else set())
