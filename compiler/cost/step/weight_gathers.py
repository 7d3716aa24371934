"""Time and traffic of weights that data-parallel ranks share (generalized tensor parallelism).

Every micro-batch gathers each weight before its use, in the forward and in the backward pass, and
reduces its gradient among the ranks that share it (megatron/core/tensor_parallel/
generalized_tensor_parallelism.py). A weight is gathered while the previous one is multiplied.
"""

from __future__ import annotations

from parc.compiler.cost.kernels.layer_kernels import NOTHING, ForwardBackward
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import StageContents
from parc.compiler.cost.step.gradients import exposed_seconds, gradient_overlap_fraction
from parc.compiler.ir import LayerKind, Layout

WEIGHT_BYTES = 2.0
"""Bytes per gathered weight: weights are gathered in 16 bit, and weights that are stored in 8 bit
with both of their scalings."""
SHARES_GRADIENTS_ONCE = 2
"""Passes over a whole weight gradient before it is reduced: it is divided by the number of sharing
ranks, which reads and writes it."""
ADDS_SHARD = 3
"""Passes over the own part of a reduced weight gradient: the sum is read and written, the part
read."""


def exposed_weight_seconds(
    cost_model: CostModel, layout: Layout, kind: LayerKind, compute: ForwardBackward
) -> ForwardBackward:
    """Return the exposed seconds of gathers and reductions of one layer's weights, per micro-batch.

    ``compute`` is the time of the layer's computation, with which the traffic can overlap.
    """
    if not layout.shares_weights:
        return NOTHING
    traffic = _traffic_seconds(cost_model, layout, _divided_parameters(cost_model, layout, kind))
    window = gradient_overlap_fraction(cost_model)
    return ForwardBackward(
        exposed_seconds(traffic.forward, 0.0, window * compute.forward),
        exposed_seconds(traffic.backward, 0.0, window * compute.backward),
    )


def gradient_sum_seconds(cost_model: CostModel, layout: Layout, kind: LayerKind) -> float:
    """Return the seconds in which a rank scales one layer's gradients and adds its own parts.

    The result is 0 if no weights are shared.
    """
    rate = cost_model.problem.cluster.gpu.memory_gb_per_s * 1e9 / cost_model.efficiency.stream
    each = cost_model.problem.job.gradient_bytes / rate
    shares = zip(
        _divided_parameters(cost_model, layout, kind), (layout.gtp, layout.egtp), strict=True
    )
    return each * sum(
        parameters * (SHARES_GRADIENTS_ONCE + ADDS_SHARD / ranks) for parameters, ranks in shares
    )


def exposed_table_seconds(cost_model: CostModel, layout: Layout, compute: ForwardBackward) -> float:
    """Return the exposed seconds of the output projection's weight, per micro-batch.

    ``compute`` is the time of the output projection. With one pipeline stage, the result includes
    the gather of the embedding, which nothing precedes.
    """
    if layout.gtp == 1:
        return 0.0
    rows = cost_model.framework.padded_vocab(cost_model.problem, layout.tp)
    table = rows * cost_model.problem.model.hidden / layout.tp
    traffic = _traffic_seconds(cost_model, layout, (table, 0.0))
    window = gradient_overlap_fraction(cost_model)
    seconds = exposed_seconds(traffic.forward, 0.0, window * compute.forward)
    seconds += exposed_seconds(traffic.backward, 0.0, window * compute.backward)
    return seconds + (traffic.forward if layout.pp == 1 else 0.0)


def shared_weight_bytes(
    cost_model: CostModel, layout: Layout, load: StageContents
) -> dict[str, float]:
    """Return the bytes per micro-batch that a rank of a stage sends to sharing ranks, by axis."""
    model = cost_model.problem.model
    sums = [0.0, 0.0]
    for kind, count in load.layers_by_kind(model).items():
        for index, part in enumerate(_divided_parameters(cost_model, layout, kind)):
            sums[index] += count * part
    if layout.gtp > 1:
        rows = cost_model.framework.padded_vocab(cost_model.problem, layout.tp)
        sums[0] += (load.embedding + load.loss) * rows * model.hidden / layout.tp
    each = 2 * WEIGHT_BYTES + cost_model.problem.job.gradient_bytes
    found = {}
    for axis, ranks, parameters in zip(
        ("gtp", "egtp"), (layout.gtp, layout.egtp), sums, strict=True
    ):
        if parameters:
            found[axis] = each * parameters * (ranks - 1) / ranks
    return found


def _divided_parameters(
    cost_model: CostModel, layout: Layout, kind: LayerKind
) -> tuple[float, float]:
    """Return the parameters of a layer that ranks share: (dense, routed experts); 0 if not."""
    dense, expert = cost_model.shared_layer_parameters(kind, layout)
    return dense * (layout.gtp > 1), expert * (layout.egtp > 1)


def _traffic_seconds(
    cost_model: CostModel, layout: Layout, parameters: tuple[float, float]
) -> ForwardBackward:
    """Return the seconds of the traffic for ``parameters`` (dense, experts), without overlap."""
    links, spans = cost_model.links, cost_model.group_spans(layout)
    gradient = cost_model.problem.job.gradient_bytes
    gather = scatter = 0.0
    for count, group in zip(parameters, (spans.gtp, spans.egtp), strict=True):
        if count:
            gather += links.collective_seconds("all_gather", WEIGHT_BYTES * count, group)
            scatter += links.collective_seconds("reduce_scatter", gradient * count, group)
    return ForwardBackward(gather, gather + scatter)
