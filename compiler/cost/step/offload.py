"""Offloaded state: bytes in host memory, and time over PCIe, NVMe and in CPU Adam.

Sources: ZeRO-Offload (arXiv:2101.06840) for gradients, master weights and moments on the host, 16
bytes per parameter, and for the speed of CPU-Adam; ZeRO-Infinity (arXiv:2104.07857) for the rates
per GPU of host memory and NVMe on a DGX-2 whose GPUs all read at the same time.
"""

from __future__ import annotations

from parc.compiler.cost.memory.activations import layer_activations
from parc.compiler.cost.schedules.estimates import micro_batches_in_flight
from parc.compiler.cost.schedules.table import PipelineShape
from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.setup.stages import stage_contents
from parc.compiler.ir import LayerKind, Layout, Problem

CPU_ADAM_PARAMETERS_PER_SECOND = 3.9e9
"""Parameters that CPU-Adam updates per second and host: 10 G parameters in 2.57 s on two 24-core
Xeons (ZeRO-Offload, table 4)."""
HOST_STATE_BYTES = 16.0
"""Bytes per parameter on the host: fp32 master weight, two moments, fp32 gradient."""
NVME_STATE_BYTES = 12.0
"""Bytes per parameter that are read from NVMe before the update, and written to NVMe after it."""
NVME_GB_PER_S = 1.6
"""NVMe rate of a host per GPU (ZeRO-Infinity, section 5.2)."""


def host_bytes_per_second(problem: Problem, device: str = "cpu") -> float:
    """Return the bytes per second between one GPU and ``device``, which is ``cpu`` or ``nvme``."""
    link = problem.cluster.generation.host_link_gb_per_s
    return (min(link, NVME_GB_PER_S) if device == "nvme" else link) * 1e9


def shard_parameters(layout: Layout, stage_parameters: tuple[float, float]) -> float:
    """Return the number of parameters whose optimizer state one rank stores.

    ``stage_parameters`` is (number of dense parameters, number of routed-expert parameters) of the
    rank's pipeline stage.
    """
    if not layout.zero_stage:
        return sum(stage_parameters)
    dense, expert = stage_parameters
    shards, expert_shards = layout.optimizer_shards
    return dense / shards + expert / expert_shards


def offloaded_host_bytes(
    cost_model: CostModel, layout: Layout, stage_parameters: tuple[float, float]
) -> float:
    """Return the bytes of offloaded state in the memory of one host.

    The result is 0 if no state is offloaded. ``stage_parameters`` is (number of dense parameters,
    number of routed-expert parameters) of a pipeline stage.
    """
    offload, parameters = layout.offload, shard_parameters(layout, stage_parameters)
    each = HOST_STATE_BYTES * (offload.optimizer == "cpu") + 2.0 * (offload.parameters == "cpu")
    if offload.optimizer == "nvme":
        # With NVMe offload only the gradients stay in host memory.
        each += HOST_STATE_BYTES - NVME_STATE_BYTES  # gradients stay in host memory
    return each * parameters * min(cost_model.problem.cluster.node.gpus, layout.world)


def gradient_offload_seconds(
    cost_model: CostModel, layout: Layout, stage_parameters: tuple[float, float]
) -> float:
    """Return the seconds that a rank takes to send its shard of 16-bit gradients to the host.

    The result is 0 if the optimizer is not offloaded.
    """
    if layout.offload.optimizer == "none":
        return 0.0
    return (
        2.0 * shard_parameters(layout, stage_parameters) / host_bytes_per_second(cost_model.problem)
    )


def weight_fetch_seconds(
    cost_model: CostModel, layout: Layout, stage_parameters: tuple[float, float]
) -> float:
    """Return the seconds that a rank takes to read its offloaded 16-bit weights before one gather.

    The result is 0 if the weights are not offloaded.
    """
    device = layout.offload.parameters
    if device == "none":
        return 0.0
    return (
        2.0
        * shard_parameters(layout, stage_parameters)
        / host_bytes_per_second(cost_model.problem, device)
    )


def activation_copy_seconds(cost_model: CostModel, layout: Layout, kind: LayerKind) -> float:
    """Return the seconds that a rank takes to copy the offloaded activations of one layer one way.

    ``kind`` is the type of the layer. The memory model must be that of the framework's own program.
    """
    return _offloaded_activation_bytes(cost_model, layout, kind) / host_bytes_per_second(
        cost_model.problem
    )


def _offloaded_activation_bytes(cost_model: CostModel, layout: Layout, kind: LayerKind) -> float:
    """Return the offloaded activation bytes of one layer and micro-batch on one rank."""
    program = cost_model.framework.training_memory_model(cost_model.problem)
    length = cost_model.problem.job.sequence_length
    batch = (length * layout.micro_batch / layout.cp, length // layout.cp)
    layer = layer_activations(cost_model.problem.model, layout, kind, batch, program)
    return layer.offloaded_bytes(layout)


def activation_host_bytes(cost_model: CostModel, layout: Layout) -> float:
    """Return the bytes of offloaded activations in the memory of one host of the first stage.

    The first stage has the most micro-batches in flight.
    """
    if not layout.offload.activations:
        return 0.0
    model, job = cost_model.problem.model, cost_model.problem.job
    load = stage_contents(model, layout.split, 0)
    shape = PipelineShape(layout.pp, layout.micro_batches(job.global_batch), layout.vpp)
    flight = micro_batches_in_flight(layout.schedule, 0, shape, load.chunks)
    each = sum(
        layers * _offloaded_activation_bytes(cost_model, layout, kind)
        for kind, layers in load.layers_by_kind(model).items()
    )
    return flight * each * min(cost_model.problem.cluster.node.gpus, layout.world)


def offloaded_update_seconds(
    cost_model: CostModel, layout: Layout, stage_parameters: tuple[float, float]
) -> float:
    """Return the time in seconds of an offloaded optimizer step.

    The result is the sum of three times: Adam on the CPU cores of the host, transfer of the state
    from NVMe and back, and transfer of the new weights to the GPU.
    """
    # No overlap of transfers and updates is assumed.
    parameters, problem = shard_parameters(layout, stage_parameters), cost_model.problem
    # All ranks of a host share its CPU cores.
    ranks = min(problem.cluster.node.gpus, layout.world)
    seconds = parameters * ranks / CPU_ADAM_PARAMETERS_PER_SECOND
    if layout.offload.optimizer == "nvme":
        seconds += 2 * NVME_STATE_BYTES * parameters / host_bytes_per_second(problem, "nvme")
    if layout.offload.parameters == "none":
        seconds += 2.0 * parameters / host_bytes_per_second(problem)
    return seconds
