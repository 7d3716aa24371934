"""Environment variables of the ranks: for PyTorch, the network, the framework, and the user."""

from __future__ import annotations

from parc.backends.base import RefusedEnvironment
from parc.backends.registry import framework_of_problem
from parc.backends.shared.network import Variable, network_environment
from parc.compiler.ir import Launch, Plan, ServingPlan
from parc.compiler.topology.arrange_hosts import engine_hosts

OMP_THREADS_LIMIT = 8
"""Most CPU threads per rank; data loading and host optimizers are no faster with more threads."""


def launch_environment(plan: Plan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of every environment variable that the launch script exports.

    Each name occurs once. If several sources set a variable, the last source wins, in this order:
    GPU order, PyTorch, network (only with several hosts), framework, ``launch.env`` of the spec.
    Variables in ``launch.env_inherited`` are left out, because the launch script takes their values
    from the environment.
    """
    cluster, launch = plan.problem.cluster, plan.problem.launch
    network = network_environment(cluster, launch) if len(plan.placement.hosts) > 1 else ()
    # ``launch.env`` is last, so that the user has the final say; L14 and N08 report values that
    # break a plan.
    own = _gpu_order_variable(plan) + _torch_variables(plan) + network + framework_environment(plan)
    return drop_inherited_variables(own + _user_variables(launch), launch)


def engine_environment(plan: ServingPlan, own: tuple[Variable, ...]) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable of the processes of an engine.

    Each name occurs once. If several sources set a variable, the last source wins, in this order:
    network (only if an engine has several hosts), ``own``, ``launch.env`` of the spec.
    """
    cluster, launch = plan.problem.cluster, plan.problem.launch
    hosts = engine_hosts(plan.layout, cluster.node.gpus) or 1
    network = network_environment(cluster, launch) if hosts > 1 else ()
    return drop_inherited_variables((*network, *own, *_user_variables(launch)), launch)


def stage_layers_variable(
    plan: ServingPlan, name: str, default: tuple[int, ...], title: str
) -> tuple[Variable, ...]:
    """Return the variable ``name`` with the layers per pipeline stage.

    Return nothing if the layers are split as the engine called ``title`` does by ``default``.
    """
    stages = plan.layout.stages
    if not stages or stages == default:
        return ()
    why = f"layers per pipeline stage, different from {title}'s default split"
    return ((name, ",".join(map(str, stages)), why),)


def _user_variables(launch: Launch) -> tuple[Variable, ...]:
    return tuple((name, value, "from launch.env of the spec") for name, value in launch.env)


def drop_inherited_variables(
    variables: tuple[Variable, ...], launch: Launch
) -> tuple[Variable, ...]:
    """Return ``variables`` without those whose names are in ``launch.env_inherited``.

    If several variables have the same name, only the last of them is returned.
    """
    last = {variable[0]: variable for variable in variables}
    return tuple(last[name] for name in last if name not in launch.env_inherited)


def framework_environment(plan: Plan) -> tuple[Variable, ...]:
    """Return (name, value, reason) of each environment variable that the framework requires."""
    target = framework_of_problem(plan.problem)
    required = target.environment(plan)
    return tuple((key, value, f"required by {target.name}") for key, value in required)


def refused_variables(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return (name, value) of each variable with which the framework does not start."""
    target = framework_of_problem(plan.problem)
    return target.refused_environment(plan) if isinstance(target, RefusedEnvironment) else ()


def _gpu_order_variable(plan: Plan) -> tuple[Variable, ...]:
    """Return the variable that sets the order of the GPUs of a host.

    Return nothing if the plan keeps the default order.
    """
    if not plan.placement.devices:
        return ()
    nvidia = plan.problem.cluster.gpu.vendor == "nvidia"
    name = "CUDA_VISIBLE_DEVICES" if nvidia else "HIP_VISIBLE_DEVICES"
    why = "one device per local rank, in an order in which the ranks of a group share a NUMA node"
    return ((name, ",".join(map(str, plan.placement.devices)), why),)


def _torch_variables(plan: Plan) -> tuple[Variable, ...]:
    """Return the variables for PyTorch: threads, error handling and memory allocation."""
    node = plan.problem.cluster.node
    # torchrun sets OMP_NUM_THREADS=1 if it is unset and a host has several ranks.
    threads = min(OMP_THREADS_LIMIT, max(1, node.cpu_cores // node.gpus))
    common: tuple[Variable, ...] = (
        ("OMP_NUM_THREADS", str(threads), "torchrun would set 1"),
        ("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log"),
        (
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "1",
            "if a peer fails, the job ends instead of hanging",
        ),
        # Recorded buffers stay allocated until the allocator polls the stream, which costs memory.
        ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1", "frees buffers of collectives immediately"),
    )
    if plan.problem.cluster.gpu.vendor != "nvidia":
        return common
    why = "less fragmentation: segments of the allocator can grow"
    return (*common, ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", why))
