"""Time of one layer and micro-batch on one rank: computation and exposed communication."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.cost.kernels.adapters import adapter_gemm_shapes, adapter_traffic_bytes
from parc.compiler.cost.kernels.attention import BACKWARD_FACTOR, flash_attention_2_factor
from parc.compiler.cost.kernels.layer_kernels import (
    NOTHING,
    ForwardBackward,
    GemmShape,
    attention_gemm_shapes,
    element_wise_bytes,
    extra_gemm_shapes,
    fused_attention_core_seconds,
    gemm_forward_backward_seconds,
    mean_head_dim,
    mlp_gemm_shapes,
    unfused_attention_core_seconds,
)
from parc.compiler.cost.kernels.recurrence import SCAN_BACKWARD, recurrence_of_layer, scan_seconds
from parc.compiler.cost.kernels.scaling import cast_bytes
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.context_exchange import mixer_exchange_seconds
from parc.compiler.cost.step.gradient_sums import (
    base_gradient_bytes,
    gradient_accumulation_seconds,
    gradient_sum_bytes,
)
from parc.compiler.cost.step.launch_time import host_seconds
from parc.compiler.cost.step.offload import activation_copy_seconds
from parc.compiler.cost.step.operator_recompute import recomputed_product_share
from parc.compiler.cost.step.pass_time import launch_norm, pass_time
from parc.compiler.cost.step.routed_experts import (
    dispatch_seconds,
    routed_expert_seconds,
)
from parc.compiler.cost.step.tensor_exchange import (
    collective_forward_backward_seconds,
    dense_collectives,
    exchange_copy_bytes,
    expert_collectives,
)
from parc.compiler.cost.step.weight_gathers import (
    exposed_table_seconds,
    exposed_weight_seconds,
    gradient_sum_seconds,
)
from parc.compiler.ir import LayerKind, Layout, Model
from parc.compiler.ir.frozen import frozen

TP_BACKWARD = 0.5
"""Minimum exposed fraction of the backward collectives with sequence parallelism. Assumed, based on
the collectives that Megatron-LM overlaps with GEMMs."""
WEIGHT_GRADIENTS = 0.25
"""Fraction of a layer's backward GEMMs that overlap with tensor-parallel collectives. These GEMMs
are the weight gradients of the first projections of attention and MLP, which take about half of the
backward time of these projections."""


@frozen
class LayerTime:
    """Time of one layer and micro-batch in seconds, by term."""

    forward: float
    """Computation of the forward pass."""
    core: float
    """Forward pass of the attention core, which is part of ``forward``."""
    backward: float
    tp_forward: float
    """Exposed tensor-parallel collectives of the forward pass, including gathers of weights that
    data-parallel ranks share."""
    tp_backward: float
    cp_forward: float
    """Exposed communication of context parallelism in the forward pass."""
    cp_backward: float
    ep: float
    launch_forward: float
    """Part of the forward pass that grows in proportion to the host's launch time."""
    launch_backward: float
    operators: float
    """Part of ``forward`` that is repeated if operators are recomputed."""

    @property
    def compute(self) -> float:
        """Return the time in seconds of computation in the forward and backward pass."""
        return self.forward + self.backward

    @property
    def tp(self) -> float:
        """Return the exposed seconds of tensor-parallel collectives, forward plus backward."""
        return self.tp_forward + self.tp_backward

    @property
    def cp(self) -> float:
        """Return the exposed seconds of context parallelism, forward plus backward."""
        return self.cp_forward + self.cp_backward

    @property
    def total(self) -> float:
        """Return the sum of computation and exposed communication in seconds."""
        return self.compute + self.tp + self.cp + self.ep

    @property
    def forward_pass(self) -> float:
        """Return the time in seconds of the forward pass, including exposed communication.

        Half of the time of dispatch and combine belongs to the forward pass.
        """
        return self.forward + self.tp_forward + self.cp_forward + self.ep / 2


def layer_time(cost_model: CostModel, layout: Layout, kind: LayerKind) -> LayerTime:
    """Return the time in seconds of one layer of type ``kind`` for one micro-batch, by term."""
    row, work = cost_model.efficiency, _computation(cost_model, layout, kind)
    host = host_seconds(cost_model, layout, kind)
    tp = _exposed_tp_seconds(cost_model, layout, kind, WEIGHT_GRADIENTS * work.gemms.backward)
    cp = mixer_exchange_seconds(cost_model, layout, kind, work.core.forward)
    copies = (
        activation_copy_seconds(cost_model, layout, kind) if layout.offload.activations else 0.0
    )
    norm = launch_norm(row)
    ahead = pass_time(
        (work.total.forward, row.tp * tp.forward, cp.forward),
        (host.forward, norm),
        copies,
    )
    back = pass_time(
        (work.total.backward, row.tp * tp.backward, cp.backward),
        (host.backward, norm),
        copies,
    )
    # Whatever else overlaps with a pass overlaps with the whole of it.
    window = ForwardBackward(ahead.total, back.total)
    weights = exposed_weight_seconds(cost_model, layout, kind, window)
    groups = cost_model.group_spans(layout)
    return LayerTime(
        forward=ahead.compute,
        core=work.core.forward,
        backward=back.compute,
        tp_forward=ahead.tp + weights.forward,
        tp_backward=back.tp + weights.backward,
        cp_forward=ahead.cp,
        cp_backward=back.cp,
        ep=dispatch_seconds(cost_model, layout, groups, window.total) if kind.routed else 0.0,
        launch_forward=ahead.launch,
        launch_backward=back.launch,
        operators=work.operators,
    )


class _Computation(NamedTuple):
    """Seconds of the kernels of one layer and micro-batch, without collectives."""

    gemms: ForwardBackward
    core: ForwardBackward
    total: ForwardBackward
    """All kernels, including ``gemms`` and ``core``."""
    operators: float
    """Part of the forward pass that is repeated if operators are recomputed."""


def _computation(cost_model: CostModel, layout: Layout, kind: LayerKind) -> _Computation:
    # Many layouts differ only in how they divide the routed experts.
    sizes = (layout.tp, layout.cp, layout.micro_batch)
    state = (layout.sequence_parallel, layout.zero_stage, layout.gtp > 1)
    work = cost_model.cached(
        ("dense kernels", kind, sizes, state), lambda: _dense_computation(cost_model, layout, kind)
    )
    forward, backward, operators = work.total.forward, work.total.backward, work.operators
    backward += gradient_accumulation_seconds(
        cost_model, layout, sum(cost_model.trained_layer_parameters(kind, layout))
    )
    if layout.shares_weights:
        backward += gradient_sum_seconds(cost_model, layout, kind)
    if kind.routed:
        tokens = layout.tokens(cost_model.problem.job.sequence_length)
        own = routed_expert_seconds(cost_model, layout, tokens)
        forward, backward = forward + own.forward, backward + own.backward
        operators += own.forward
    return _Computation(work.gemms, work.core, ForwardBackward(forward, backward), operators)


def _dense_computation(cost_model: CostModel, layout: Layout, kind: LayerKind) -> _Computation:
    """Return the seconds of all kernels but routed experts and those that only add gradients."""
    job, model, row = cost_model.problem.job, cost_model.problem.model, cost_model.efficiency
    tokens = layout.tokens(job.sequence_length)
    shapes = _gemm_shapes(cost_model, layout, kind, tokens)
    base, summed = base_gradient_bytes(cost_model, layout), gradient_sum_bytes(cost_model, layout)
    passes = [_cached_gemm_seconds(cost_model, shape, base) for shape in shapes]
    adapters = adapter_gemm_shapes(model, job.lora, kind, tokens)
    passes += [_cached_gemm_seconds(cost_model, shape, summed) for shape in adapters]
    gemms = ForwardBackward(sum(one.forward for one in passes), sum(one.backward for one in passes))
    core = attention_core_seconds(cost_model, layout, kind)
    scan = _recurrence_seconds(cost_model, layout, kind, tokens)
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9
    moved, casts = layer_traffic(cost_model, layout, kind), cast_bytes(shapes, cost_model.scaling)
    streamed = row.stream * (moved.forward + casts.forward) / rate
    operators = streamed + scan.forward
    if not job.is_low_precision:
        share = cost_model.cached(
            ("recomputed products", kind), lambda: recomputed_product_share(model, kind)
        )
        operators += share * gemms.forward
    forward = gemms.forward + core.forward + scan.forward + streamed
    backward = gemms.backward + core.backward + scan.backward
    backward += row.stream * (moved.backward + casts.backward) / rate
    return _Computation(gemms, core, ForwardBackward(forward, backward), operators)


def layer_traffic(cost_model: CostModel, layout: Layout, kind: LayerKind) -> ForwardBackward:
    """Return the bytes that element-wise kernels and copies of one layer move, by pass."""
    problem = cost_model.problem
    tokens, traffic = layout.tokens(problem.job.sequence_length), cost_model.traffic(layout)
    moved = element_wise_bytes(problem.model, layout, kind, tokens, traffic)
    adapters = adapter_traffic_bytes(
        problem.model, problem.job.lora, kind, tokens, traffic.adapter_cast
    )
    return moved + exchange_copy_bytes(cost_model, layout, kind) + adapters


def _cached_gemm_seconds(
    cost_model: CostModel, shape: GemmShape, sum_bytes: float | None
) -> ForwardBackward:
    """Return the forward and backward times in seconds of a GEMM of shape (m, n, k) in a step.

    ``sum_bytes`` is the traffic per weight gradient; None for a frozen weight. The times are
    computed once per shape.
    """
    # Many layers and layouts have GEMMs of the same shape.
    return cost_model.cached(
        ("gemm", shape, sum_bytes),
        lambda: cost_model.step_gemm_seconds(
            lambda fit: gemm_forward_backward_seconds(fit, [shape], sum_bytes)
        ),
    )


def _gemm_shapes(
    cost_model: CostModel, layout: Layout, kind: LayerKind, tokens: float
) -> list[GemmShape]:
    """Return the (m, n, k) shapes of a layer's forward GEMMs, except those of routed experts."""
    problem = cost_model.problem
    model = problem.model.with_shapes_of(kind)
    shapes = extra_gemm_shapes(model, kind, tokens, problem.job.sequence_length)
    part = recurrence_of_layer(model, kind)
    if kind.attends:
        shapes += attention_gemm_shapes(model, layout, tokens)
    if part is not None:
        inner = part.inner / layout.tp
        projected = part.projected / layout.tp
        shapes += [(tokens, projected, model.hidden), (tokens, model.hidden, inner)]
        shapes += [(tokens, n / layout.tp, k) for n, k in part.inner_products]
    width = model.ffn.size if kind.mlp == "dense" else 0
    if kind.routed and model.experts is not None:
        width = model.experts.shared_size
    return shapes + mlp_gemm_shapes(model, layout, tokens, width) if width else shapes


def _recurrence_seconds(
    cost_model: CostModel, layout: Layout, kind: LayerKind, tokens: float
) -> ForwardBackward:
    """Return the forward and backward times in seconds of a recurrence, without its projections.

    The times include the matrix products inside chunks, convolution, norms and gate. Both times are
    zero for layers without recurrence.
    """
    part = recurrence_of_layer(cost_model.problem.model, kind)
    if part is None:
        return NOTHING
    own = tokens / layout.tp
    job, gpu = cost_model.problem.job, cost_model.problem.cluster.gpu
    scan = scan_seconds(cost_model.kernels.scan, part, own, job.sequence_length)
    rate = gpu.memory_gb_per_s * 1e9
    stream = cost_model.efficiency.stream * own * part.streamed_bytes / rate
    return ForwardBackward(scan + stream, SCAN_BACKWARD * scan + 2 * stream)


def attention_core_seconds(
    cost_model: CostModel, layout: Layout, kind: LayerKind
) -> ForwardBackward:
    """Return the forward and backward times in seconds of a layer's attention core.

    Both times are zero for layers without attention.
    """
    if not kind.attends:
        return NOTHING
    key = ("core", kind.variant, layout.tp, layout.cp, layout.micro_batch)
    model = cost_model.problem.model.with_shapes_of(kind)
    return cost_model.cached(
        key, lambda: _compute_attention_core_seconds(cost_model, model, layout)
    )


def _compute_attention_core_seconds(
    cost_model: CostModel, model: Model, layout: Layout
) -> ForwardBackward:
    """Compute the forward and backward times in seconds of the attention core.

    The software stack determines whether the core is fused.
    """
    sequence = cost_model.problem.job.sequence_length
    row = cost_model.efficiency
    traffic = cost_model.traffic(layout)
    if row.unfused or traffic.scores is not None:
        core = unfused_attention_core_seconds(cost_model.kernels, model, layout, sequence, traffic)
        return ForwardBackward(row.attention * core.forward, row.attention * core.backward)
    forward = row.attention * fused_attention_core_seconds(
        cost_model.kernels, model, layout, sequence
    )
    if row.flash_attention_2:
        capability = cost_model.problem.cluster.gpu.compute_capability
        forward *= flash_attention_2_factor(mean_head_dim(model.attention), capability)
    return ForwardBackward(forward, BACKWARD_FACTOR * forward)


def _exposed_tp_seconds(
    cost_model: CostModel, layout: Layout, kind: LayerKind, window: float
) -> ForwardBackward:
    """Return the exposed forward and backward times in seconds of tensor-parallel collectives.

    Backward collectives overlap with GEMMs that take ``window`` seconds. With sequence parallelism,
    at most half of these collectives can overlap. All forward collectives, and all collectives of
    experts with etp > 1, are exposed.
    """
    if layout.tp == 1:
        return NOTHING
    groups = cost_model.group_spans(layout)
    dense = dense_collectives(cost_model, layout, kind)
    exposed = collective_forward_backward_seconds(cost_model, dense, groups.tp)
    if cost_model.efficiency.overlaps_tp:
        share = TP_BACKWARD if layout.sequence_parallel else 0.0
        # The GEMMs that hide the collectives, and what the framework overlaps, limit the overlap.
        backward = max(share * exposed.backward, exposed.backward - window)
        exposed = ForwardBackward(exposed.forward, backward)
    expert = collective_forward_backward_seconds(
        cost_model, expert_collectives(cost_model, layout, kind), groups.etp
    )
    return exposed + expert


def output_head_seconds(cost_model: CostModel, layout: Layout) -> float:
    """Return the time in seconds of output projection and loss of one micro-batch.

    The time includes the forward and the backward pass. It is computed once for all layouts with
    equal inputs.
    """
    tokens = layout.tokens(cost_model.problem.job.sequence_length)
    # How gradients are added depends on the last two.
    key = ("head", tokens, layout.tp, layout.zero_stage > 1, layout.sequence_parallel)
    # The gathers of a shared weight depend on its ranks; one stage also gathers the embedding.
    shared = (cost_model.group_spans(layout).gtp, layout.pp == 1) if layout.gtp > 1 else ()
    return cost_model.cached(
        (key, shared), lambda: _output_head_seconds(cost_model, layout, tokens)
    )


def _output_head_seconds(cost_model: CostModel, layout: Layout, tokens: float) -> float:
    """Compute the result of ``output_head_seconds``, for a micro-batch of ``tokens`` per rank."""
    model, row = cost_model.problem.model, cost_model.efficiency
    vocab = cost_model.framework.padded_vocab(cost_model.problem, layout.tp) / layout.tp
    # Rows of the padded vocabulary are computed too.
    shape, sum_bytes = (tokens, vocab, model.hidden), base_gradient_bytes(cost_model, layout)
    gemm = gemm_forward_backward_seconds(cost_model.head_gemm, [shape], sum_bytes)
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9
    moved = row.stream * cost_model.traffic(layout).logit_bytes * tokens * vocab / rate
    trained = 0.0 if cost_model.problem.job.lora else vocab * model.hidden
    added = gradient_accumulation_seconds(cost_model, layout, trained)
    added += exposed_table_seconds(cost_model, layout, gemm)
    return row.gemm * (gemm.forward + gemm.backward) + moved + added
