"""The environment of every rank: PyTorch, network, framework, then what the user says."""

from __future__ import annotations

from parc.backends.registry import framework_of
from parc.backends.shared.network import Variable, network_environment
from parc.compiler.ir import Plan

OMP_THREADS_LIMIT = 8
"""CPU threads a rank: data loading and the optimizer on the host gain nothing beyond."""


def launch_environment(plan: Plan) -> tuple[Variable, ...]:
    """Name, value and reason of every variable to export; a name occurs once, the last one wins.

    Order: devices, PyTorch, network (two hosts or more), framework, ``launch.env`` of the spec.
    """
    cluster, launch = plan.problem.cluster, plan.problem.launch
    network = network_environment(cluster, launch) if len(plan.placement.hosts) > 1 else ()
    own = _devices(plan) + _torch_environment(plan) + network + framework_environment(plan)
    user = tuple((name, value, "the spec says so") for name, value in launch.env)
    return tuple({variable[0]: variable for variable in own + user}.values())


def framework_environment(plan: Plan) -> tuple[Variable, ...]:
    """What the framework asks for, where its files are emitted too."""
    target = framework_of(plan.problem)
    asked = target.environment(plan)
    return tuple((key, value, f"{target.name} asks for it") for key, value in asked)


def _devices(plan: Plan) -> tuple[Variable, ...]:
    """The order of the GPUs, where another than the driver's brings groups nearer together."""
    if not plan.placement.devices:
        return ()
    nvidia = plan.problem.cluster.gpu.vendor == "nvidia"
    name = "CUDA_VISIBLE_DEVICES" if nvidia else "HIP_VISIBLE_DEVICES"
    why = "ranks of a group share a NUMA node: device of local rank 0, 1, ..."
    return ((name, ",".join(map(str, plan.placement.devices)), why),)


def _torch_environment(plan: Plan) -> tuple[Variable, ...]:
    node = plan.problem.cluster.node
    threads = min(OMP_THREADS_LIMIT, max(1, node.cpu_cores // node.gpus))
    common: tuple[Variable, ...] = (
        ("OMP_NUM_THREADS", str(threads), "torchrun would set 1"),
        ("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", "a dead peer ends the job, it does not hang it"),
        ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1", "buffers of collectives are freed at once"),
    )
    if plan.problem.cluster.gpu.vendor != "nvidia":
        return common
    why = "fewer fragments: freed blocks of any size are joined"
    return (*common, ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", why))
