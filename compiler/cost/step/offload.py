"""State outside of the GPUs: bytes on the host, and seconds over PCIe, NVMe and in CPU Adam.

Sources: ZeRO-Offload (arXiv:2101.06840): gradients, master weights and moments on the host, 16
bytes a parameter, and its table of CPU-Adam; ZeRO-Infinity (arXiv:2104.07857): rates of one
GPU's share of host memory and NVMe on a DGX-2 whose GPUs all read at once.
"""

from __future__ import annotations

from parc.compiler.cost.setup.pricing import Pricing
from parc.compiler.ir import Layout, Problem

CPU_ADAM_PARAMETERS_PER_SECOND = 3.9e9
"""Of one host: 10 G parameters in 2.57 s on two 24-core Xeons (ZeRO-Offload, table 4)."""
HOST_STATE_BYTES = 16.0
"""A parameter: fp32 master weight, two moments, fp32 gradient."""
NVME_STATE_BYTES = 12.0
"""A parameter: what is read from NVMe before its update, and written after."""
NVME_GB_PER_S = 1.6
"""One GPU's share of the NVMe of its host (ZeRO-Infinity, section 5.2)."""


def host_rate(problem: Problem, device: str = "cpu") -> float:
    """Bytes a second between one GPU and ``device``, ``cpu`` or ``nvme``."""
    link = problem.cluster.generation.host_link_gb_per_s
    return (min(link, NVME_GB_PER_S) if device == "nvme" else link) * 1e9


def shard_parameters(layout: Layout, held: tuple[float, float]) -> float:
    """Parameters whose state one rank keeps, of the (dense, expert) ones ``held`` on its stage."""
    if not layout.zero_stage:
        return sum(held)
    dense, expert = held
    shards = max(layout.edp // layout.dp_replicate, 1)
    return dense / (layout.dp_shard * layout.cp) + expert / shards


def host_bytes(pricing: Pricing, layout: Layout, held: tuple[float, float]) -> float:
    """Bytes in the memory of one host; nothing where nothing is moved there."""
    away, parameters = layout.offload, shard_parameters(layout, held)
    each = HOST_STATE_BYTES * (away.optimizer == "cpu") + 2.0 * (away.parameters == "cpu")
    if away.optimizer == "nvme":
        each += HOST_STATE_BYTES - NVME_STATE_BYTES  # gradients wait in host memory
    return each * parameters * min(pricing.problem.cluster.node.gpus, layout.world)


def gradient_seconds(pricing: Pricing, layout: Layout, held: tuple[float, float]) -> float:
    """Sending the 16-bit gradients of a shard to the host, once a reduction."""
    if layout.offload.optimizer == "none":
        return 0.0
    return 2.0 * shard_parameters(layout, held) / host_rate(pricing.problem)


def fetch_seconds(pricing: Pricing, layout: Layout, held: tuple[float, float]) -> float:
    """Reading the own shard of 16-bit weights before one gather of all of them."""
    device = layout.offload.parameters
    if device == "none":
        return 0.0
    return 2.0 * shard_parameters(layout, held) / host_rate(pricing.problem, device)


def update_seconds(pricing: Pricing, layout: Layout, held: tuple[float, float]) -> float:
    """Adam on the cores of the host, state from and to NVMe, and the new weights to the GPU."""
    parameters, problem = shard_parameters(layout, held), pricing.problem
    ranks = min(problem.cluster.node.gpus, layout.world)
    seconds = parameters * ranks / CPU_ADAM_PARAMETERS_PER_SECOND
    if layout.offload.optimizer == "nvme":
        seconds += 2 * NVME_STATE_BYTES * parameters / host_rate(problem, "nvme")
    if layout.offload.parameters == "none":
        seconds += 2.0 * parameters / host_rate(problem)
    return seconds
