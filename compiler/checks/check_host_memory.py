"""Warn where state on the host may not fit its memory, or nobody knows how much that is."""

from __future__ import annotations

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.gradients import fullest_stage
from parc.compiler.cost.step.offload import host_bytes
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan

MOST_SHARE = 0.9
"""Of a host's memory: the system, data loading and pinned buffers need the rest."""


def check_host_memory(pricing: Pricing, plan: Plan, sink: Sink) -> None:
    """Report R15 where offload needs more than 90 % of a host, or of an unknown host."""
    node = plan.problem.cluster.node
    need = host_bytes(pricing, plan.layout, fullest_stage(pricing, plan.layout))
    have = node.host_memory_bytes
    if need == 0 or (have is not None and need <= MOST_SHARE * have):
        return
    at = "layout.offload" if sink.positions.is_written("layout.offload") else "cluster"
    words = f"offload keeps {need / 1e9:.0f} GB in the memory of every host"
    if have is None:
        finding = Finding(
            f"{words}, which is not checked: nothing says how much {node.name} has",
            label="16 bytes a parameter of optimizer state and gradients, 2 of weights",
            fix="cluster.node.host_memory: 2000GB",
        )
    else:
        finding = Finding(
            f"{words}, {have / 1e9:.0f} GB are there",
            label=f"{need / 1e9:.0f} > {MOST_SHARE} x {have / 1e9:.0f}",
            help="more hosts share the state; nvme keeps it on local disks",
            causes=(Cause("cluster.node", f"{node.name}: {have / 1e9:.0f} GB"),),
        )
    sink.report("R15", finding, at=at)
