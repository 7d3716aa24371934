"""Warning that offloaded state may not fit in host memory, or that its size is unknown."""

from __future__ import annotations

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.gradients import largest_stage_parameters
from parc.compiler.cost.step.offload import offloaded_host_bytes
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Plan

MAX_SHARE = 0.9
"""Largest fraction of host memory for offloaded state. The operating system, data loading and
pinned buffers need the remaining 10 %."""


def check_host_memory(cost_model: CostModel, plan: Plan, sink: Sink) -> None:
    """Report offload of state that needs more than 90 % of the host memory (R15).

    Any offload to host memory is reported if the size of the host memory is unknown.
    """
    node = plan.problem.cluster.node
    need = offloaded_host_bytes(
        cost_model, plan.layout, largest_stage_parameters(cost_model, plan.layout)
    )
    have = node.host_memory_bytes
    if need == 0 or (have is not None and need <= MAX_SHARE * have):
        return
    # If the search chose the offload, no line of the spec sets it.
    at = "layout.offload" if sink.positions.is_path_in_spec("layout.offload") else "cluster"
    problem = f"offload needs {need / 1e9:.0f} GB of memory per host"
    if have is None:
        finding = Finding(
            f"{problem}, but the host memory of {node.name} is unknown",
            label="offload needs 16 bytes per parameter for optimizer state and gradients, "
            "and 2 bytes for weights",
            fix="cluster.node.host_memory: 2000GB",
        )
    else:
        finding = Finding(
            f"{problem}, but a host has {have / 1e9:.0f} GB",
            label=f"{need / 1e9:.0f} GB > {MAX_SHARE} x {have / 1e9:.0f} GB",
            help="use more hosts, so that each stores less, or set layout.offload to nvme, which "
            "uses local disks",
            causes=(Cause("cluster.node", f"{node.name} has {have / 1e9:.0f} GB of host memory"),),
        )
    sink.report("R15", finding, at=at)
