"""Time in which the host launches the kernels of a layer."""

from __future__ import annotations

from parc.compiler.cost.counts.adapters import adapted_widths
from parc.compiler.cost.counts.launches import (
    ADAPTER_BACKWARD,
    ADAPTER_FORWARD,
    COLLECTIVE_LAUNCHES,
    UNIT_BACKWARD,
    UNIT_FORWARD,
    LaunchFacts,
    forward_launches,
    launch_facts,
    replayed_launches,
    unfused_launches,
)
from parc.compiler.cost.kernels.layer_kernels import NOTHING, ForwardBackward
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.tensor_exchange import dense_collectives, expert_collectives
from parc.compiler.ir import LayerKind, Layout

BACKWARD_LAUNCH = 2.0
"""Host launch time of the backward pass divided by that of the forward pass."""


def host_seconds(cost_model: CostModel, layout: Layout, kind: LayerKind) -> ForwardBackward:
    """Return the seconds that the host takes to launch the passes of a layer.

    They include the collectives of tensor parallelism, and those of FSDP2.
    """
    forward = launch_seconds(cost_model, layout, kind)
    kernels = ForwardBackward(forward, BACKWARD_LAUNCH * forward)
    calls = collective_launch_seconds(cost_model, layout, kind)
    adapters = _adapter_launch_seconds(cost_model, kind)
    return kernels + calls + adapters + _unit_launch_seconds(cost_model, layout)


def _adapter_launch_seconds(cost_model: CostModel, kind: LayerKind) -> ForwardBackward:
    """Return the seconds that the host takes to launch the LoRA adapters of a layer."""
    lora = cost_model.problem.job.lora
    if lora is None:
        return NOTHING
    count = len(adapted_widths(cost_model.problem.model, kind, lora))
    dropout = 1.0 if lora.dropout else 0.0
    launches = ForwardBackward(ADAPTER_FORWARD + dropout, ADAPTER_BACKWARD + dropout)
    return launches.scaled(count * cost_model.efficiency.launch_seconds)


def launch_seconds(cost_model: CostModel, layout: Layout, kind: LayerKind) -> float:
    """Return the seconds that the host takes to launch the forward pass of a layer."""
    model, row = cost_model.problem.model, cost_model.efficiency
    if row.unfused:
        return row.launch_seconds * unfused_launches(kind)
    if layout.cuda_graphs:
        graphs = cost_model.captured_graphs(layout)
        if not graphs.per_layer:
            # The host launches one graph per step. The gaps between the kernels of a graph are
            # part of the kernel times.
            return 0.0
        parts = graphs.parts
        replayed = cost_model.cached(
            ("replayed", kind, layout.ep, row.fused_experts, parts),
            lambda: replayed_launches(model, kind, _facts(cost_model, layout), parts),
        )
        return row.launch_seconds * replayed
    launches = cost_model.cached(
        ("launches", kind, layout.ep, row.fused_experts),
        lambda: forward_launches(model, kind, _facts(cost_model, layout)),
    )
    if cost_model.traffic(layout).separate_launches:
        launches = max(launches, unfused_launches(kind))
    return row.launch_seconds * launches


def _facts(cost_model: CostModel, layout: Layout) -> LaunchFacts:
    """Return the facts on which launches depend; ``ep`` is the only one of the layout."""
    problem = cost_model.problem
    return launch_facts(problem.job, layout, problem.model)._replace(
        fused_experts=cost_model.efficiency.fused_experts,
        cast_kernels=cost_model.scaling.cast_kernels,
    )


def _unit_launch_seconds(cost_model: CostModel, layout: Layout) -> ForwardBackward:
    """Return the seconds that the host takes to gather and reduce a layer that FSDP2 shards."""
    if layout.zero_stage < 2 or cost_model.traffic(layout).copies is None:
        return NOTHING
    each = cost_model.efficiency.launch_seconds
    return ForwardBackward(each * UNIT_FORWARD, each * UNIT_BACKWARD)


def collective_launch_seconds(
    cost_model: CostModel, layout: Layout, kind: LayerKind
) -> ForwardBackward:
    """Return the seconds in which the host launches the tensor-parallel collectives of a layer.

    CUDA graphs contain the collectives that they capture.
    """
    if layout.tp == 1 or layout.cuda_graphs:
        return NOTHING
    exchanges = dense_collectives(cost_model, layout, kind)
    exchanges += expert_collectives(cost_model, layout, kind)
    calls = [(COLLECTIVE_LAUNCHES[one.operation], one) for one in exchanges]
    return ForwardBackward(
        sum(launches * one.forward for launches, one in calls),
        sum(launches * one.backward for launches, one in calls),
    ).scaled(cost_model.efficiency.launch_seconds)
