"""Environment variables that Megatron requires."""

from __future__ import annotations

from parc.backends.megatron.capabilities import uses_fsdp
from parc.compiler.ir import Gpu, Layout, Plan

BLACKWELL = 10
"""Major compute capability of Blackwell GPUs, which do not need a single hardware queue."""


def megatron_environment(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return (name, value) of each environment variable that all ranks need."""
    return variables_for_layout(plan.problem.cluster.gpu, plan.layout)


def refused_environment(layout: Layout) -> tuple[tuple[str, str], ...]:
    """Return (name, value) of each environment variable with which Megatron stops at start-up.

    Megatron-FSDP needs several hardware queues, so that gathers overlap with computation.
    """
    return (("CUDA_DEVICE_MAX_CONNECTIONS", "1"),) if uses_fsdp(layout) else ()


def variables_for_layout(gpu: Gpu, layout: Layout) -> tuple[tuple[str, str], ...]:
    """Return (name, value) of each environment variable that this GPU and layout require.

    On GPUs before Blackwell, ``validate_args`` requires CUDA_DEVICE_MAX_CONNECTIONS=1 if tp or cp
    is above 1 (megatron/training/arguments.py). The check includes AMD GPUs, because ROCm reports
    compute capability 9.x. In other cases PARC omits the variable, because the value 1 reduces
    overlap; Megatron-FSDP does not start with it. Offloaded activations require
    NVTE_CPU_OFFLOAD_V1=1, and CUDA graphs together with expandable segments of memory require
    NCCL_GRAPH_REGISTER=0. On Blackwell, CUDA graphs with shared weights require
    CUDA_GRAPHS_USE_NODE_PRIORITY=1.
    """
    # One hardware queue keeps the launch order of communication and computation kernels, which
    # their overlap relies on.
    split = (layout.tp > 1 or layout.cp > 1) and not uses_fsdp(layout)
    found = []
    if split and (gpu.vendor == "amd" or gpu.compute_capability[0] < BLACKWELL):
        found.append(("CUDA_DEVICE_MAX_CONNECTIONS", "1"))
    if layout.offload.activations:
        # Without this variable, TransformerEngine 2.10 and newer would also offload weights.
        found.append(("NVTE_CPU_OFFLOAD_V1", "1"))
    if layout.cuda_graphs:
        found.append(("NCCL_GRAPH_REGISTER", "0"))
        if layout.shares_weights and gpu.compute_capability[0] >= BLACKWELL:
            # validate_args: gathers of shared weights keep their stream priority inside graphs.
            found.append(("CUDA_GRAPHS_USE_NODE_PRIORITY", "1"))
    return tuple(found)
