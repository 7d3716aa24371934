"""Warning: offloaded state may not fit the memory of a host, or that memory is unknown."""

from __future__ import annotations

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.cost.step.gradients import fullest_stage
from parc.compiler.cost.step.offload import host_bytes
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan

MOST_SHARE = 0.9
"""Fraction of the host memory for state; the system, data loading and pinned buffers need 10 %."""


def check_host_memory(pricing: Pricing, plan: Plan, sink: Sink) -> None:
    """Report R15 if offload needs more than 90 % of the host memory, or if that is unknown."""
    node = plan.problem.cluster.node
    need = host_bytes(pricing, plan.layout, fullest_stage(pricing, plan.layout))
    have = node.host_memory_bytes
    if need == 0 or (have is not None and need <= MOST_SHARE * have):
        return
    at = "layout.offload" if sink.positions.is_written("layout.offload") else "cluster"
    problem = f"offload needs {need / 1e9:.0f} GB of memory per host"
    if have is None:
        finding = Finding(
            f"{problem}, but the host memory of {node.name} is unknown",
            label="16 bytes per parameter for optimizer state and gradients, 2 for weights",
            fix="cluster.node.host_memory: 2000GB",
        )
    else:
        finding = Finding(
            f"{problem}; the host has {have / 1e9:.0f} GB",
            label=f"{need / 1e9:.0f} > {MOST_SHARE} x {have / 1e9:.0f}",
            help="use more hosts, which share the state, or offload: nvme, which uses local disks",
            causes=(Cause("cluster.node", f"{node.name}: {have / 1e9:.0f} GB"),),
        )
    sink.report("R15", finding, at=at)
