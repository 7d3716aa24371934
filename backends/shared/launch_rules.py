"""Checks that all launchers share: hosts, environment, set-up commands, interface and port."""

from __future__ import annotations

import re
from collections import Counter

from parc.backends.registry import framework_of_problem
from parc.backends.shared.launch_environment import framework_environment, refused_variables
from parc.backends.shared.launchers.setup_and_variables import check_setup_and_variables
from parc.backends.shared.network import GLOO_NAMES, gloo_interface
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import AnyPlan, Plan, ServingPlan

HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INTERFACE_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
SET_BY_LAUNCHER = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("HIP_VISIBLE_DEVICES", "PARC_DIR", "PARC_ANY_SHAPE"),
}
"""Variables that determine which rank runs where; the launch scripts and torchrun set them."""
SET_BY_SHELL = {"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "BASH_ENV", "IFS"}
TUNED_BY_NCCL = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"}
NOT_ROUTED = ("lo", "docker", "veth", "virbr", "cni")
OVERLAPPING_KERNELS = (10, 0)
"""Compute capability from which kernels overlap over several hardware queues (Blackwell)."""
_SHOWN = 4
"""Number of names that a message lists; of further names it shows only the number."""
_WITH_REGISTRY = re.compile(r"(docker://)?([\w-]+(?:\.[\w-]+)+(?::\d+)?)/([^#]+)(?<!\.sqsh)")
"""Name of an image that starts with the host of a registry, as in ``nvcr.io/nvidia/pytorch``."""


def check_launch(plan: AnyPlan, sink: Sink) -> None:
    """Report problems with the launch of a plan.

    The checks cover hosts, program, port, network interface, environment variables and set-up
    commands.
    """
    _check_hosts(plan, sink)
    _check_command(plan, sink)
    _check_port(plan, sink)
    _check_interface(plan, sink)
    for name, value in plan.problem.launch.env:
        _check_variable(plan, sink, name, value)
    for name in plan.problem.launch.env_inherited:
        _check_variable(plan, sink, name, "{from: environment}")
    check_setup_and_variables(plan, sink)
    check_network_variables(plan, sink)
    if not isinstance(plan, ServingPlan):
        check_device_connections(plan, sink)


def quote_names(names: list[str]) -> str:
    """Return a text with the first four of ``names`` in quotes and the number of other names."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


def _check_hosts(plan: AnyPlan, sink: Sink) -> None:
    """Report invalid host names, repeated host names (L11), and ``localhost`` as rank 0 (L09).

    ``localhost`` is reported only if the job has several hosts.
    """
    names = [host.name for host in plan.placement.hosts]
    bad = [name for name in names if not HOST_NAME.fullmatch(name)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    help_text = "use letters, digits, dot, dash and underscore, and list each host once"
    if bad:
        text = f"invalid host names: {quote_names(bad)}"
        sink.report("L11", Finding(text, label="invalid host name", help=help_text), at="cluster")
    if twice:
        text = f"hosts listed more than once would get two node ranks: {quote_names(twice)}"
        sink.report("L11", Finding(text, label="repeated host", help=help_text), at="cluster")
    if len(names) > 1 and names[0].startswith(("localhost", "127.")):
        text = f"node rank 0 is {names[0]!r}, which every other host resolves to itself"
        help_text = "use a name that all hosts resolve to the same address"
        sink.report("L09", Finding(text, help=help_text), at="cluster")


def _check_command(plan: AnyPlan, sink: Sink) -> None:
    """Report NUL bytes in program, arguments or environment (L16), and a missing program (L15)."""
    launch = plan.problem.launch
    words = [("launch.program", launch.program)]
    words += [(f"launch.args[{index}]", word) for index, word in enumerate(launch.args)]
    words += [(f"launch.env.{name}", value) for name, value in launch.env]
    for path, word in words:
        if "\0" in word:
            text = f"{path} contains a NUL byte, which cannot be passed to a program"
            sink.report("L16", Finding(text, fix="remove the NUL byte"), at=path)
    if not launch.program.strip() and not _has_emitted_program(plan):
        finding = Finding("the program to launch is empty", fix="launch.program: pretrain_gpt.py")
        sink.report("L15", finding, at="launch.program")


def _check_port(plan: AnyPlan, sink: Sink) -> None:
    """Report a rendezvous port that is outside 1024..65535 (L20)."""
    port = plan.problem.launch.master_port
    if not 1024 <= port <= 65535:
        text = f"{port} is not a valid rendezvous port"
        label = f"port {port} must be in 1024..65535"
        sink.report("L20", Finding(text, label=label), at="launch.master_port")


def _has_emitted_program(plan: AnyPlan) -> bool:
    """Return True if the launch script starts a program although the spec names none.

    This is the case for serving engines, and for frameworks for which PARC emits the program.
    """
    if isinstance(plan, ServingPlan):
        return True
    problem = plan.problem
    own = framework_of_problem(problem).default_program(
        problem.model, problem.version(problem.framework)
    )
    return not problem.launch.program and not own


def _check_interface(plan: AnyPlan, sink: Sink) -> None:
    """Report a network interface that does not reach other hosts or is not an exact name (N01)."""
    name = plan.problem.launch.network_interface
    if name is None or len(plan.placement.hosts) == 1:
        return
    # Loopback, container and virtual-machine bridges exist on every host, but lead nowhere.
    if _check_interface_name(name, sink) and name.startswith(NOT_ROUTED):
        text = f"interface {name} does not reach other hosts"
        help_text = "use an interface whose addresses all hosts can reach"
        sink.report("N01", Finding(text, help=help_text), at="launch.network_interface")


def check_names(plan: AnyPlan, sink: Sink) -> None:
    """Report invalid names of environment variables (L18) and network interfaces (N01).

    Backends call this function if they write names into scripts that no launcher checks.
    """
    for name, _ in plan.problem.launch.env:
        _check_variable_name(name, sink)
    interface = plan.problem.launch.network_interface
    if interface is not None:
        _check_interface_name(interface, sink)


def _check_interface_name(name: str, sink: Sink) -> bool:
    """Report an invalid name of a network interface (N01); return True if ``name`` is valid."""
    if INTERFACE_NAME.fullmatch(name):
        return True
    text = f"{name!r} is not the name of a network interface"
    help_text = "use one exact name such as eth0; Gloo does not support patterns"
    sink.report("N01", Finding(text, help=help_text), at="launch.network_interface")
    return False


def _check_variable_name(name: str, sink: Sink) -> bool:
    """Report an invalid name of an environment variable (L18); return True if ``name`` is valid."""
    if VARIABLE_NAME.fullmatch(name):
        return True
    text = f"{name!r} is not a valid name of an environment variable"
    help_text = "use letters, digits and underscore, and do not start with a digit"
    sink.report("L18", Finding(text, help=help_text), at="launch.env")
    return False


def _check_variable(plan: AnyPlan, sink: Sink, name: str, value: str) -> None:
    """Report a variable that must not be in ``launch.env``.

    The faults are: an invalid name (L18), a name that the shell reserves (L18), a variable that the
    launcher sets (L14), and a variable that disables NCCL's tuning (N14).
    """
    if not _check_variable_name(name, sink):
        return
    at = f"launch.env.{name}"
    # srun reads SLURM_* and SRUN_* as defaults of its options, which could change the distribution
    # of tasks.
    if name in SET_BY_LAUNCHER or name.startswith(("SLURM_", "SRUN_")):
        text = f"{name} determines which rank runs where, so only the launch scripts may set it"
        sink.report("L14", Finding(text, fix=f"remove launch.env.{name}"), at=at, key=True)
    if name in SET_BY_SHELL:
        text = f"{name} is reserved for the shell that runs the launch script"
        sink.report("L18", Finding(text, fix=f"remove launch.env.{name}"), at=at, key=True)
    if name in TUNED_BY_NCCL:
        text = f"{name}={value} disables NCCL's tuning by message size and topology"
        sink.report("N14", Finding(text, fix=f"remove launch.env.{name}"), at=at)


def check_network_variables(plan: AnyPlan, sink: Sink) -> None:
    """Report variables in ``launch.env`` that conflict with the network.

    Three conflicts are reported: a variable disables RDMA (N04), a variable sets one RoCE address
    index for all hosts (N06), or the interface is set for NCCL but not for Gloo (N02).
    """
    env = dict(plan.problem.launch.env)
    kind = plan.problem.cluster.fabric.kind
    rdma = kind in {"infiniband", "roce"}
    cause = (Cause("cluster.fabric", f"the fabric is {kind}"),)
    if rdma and env.get("NCCL_IB_DISABLE", "0") != "0":
        text = f"NCCL_IB_DISABLE turns off RDMA on {kind}; TCP sockets are about ten times slower"
        sink.report("N04", Finding(text, causes=cause), at="launch.env.NCCL_IB_DISABLE")
    if rdma and env.get("NCCL_NET", "IB").lower() == "socket":
        text = f"NCCL_NET=Socket disables RDMA on {kind}; TCP sockets are about ten times slower"
        sink.report("N04", Finding(text, causes=cause), at="launch.env.NCCL_NET")
    if kind == "roce" and "NCCL_IB_GID_INDEX" in env:
        text = "NCCL_IB_GID_INDEX is set for all hosts, but hosts may have different GID indices"
        help_text = (
            "remove the variable: NCCL 2.21 and later finds the RoCE v2 address on each host"
        )
        at = "launch.env.NCCL_IB_GID_INDEX"
        sink.report("N06", Finding(text, help=help_text, causes=cause), at=at)
    inherited = plan.problem.launch.env_inherited
    gloo = (
        "GLOO_SOCKET_IFNAME" in (*env, *inherited)
        or plan.problem.launch.network_interface is not None
    )
    if "NCCL_SOCKET_IFNAME" in env and not gloo:
        text = "NCCL_SOCKET_IFNAME is set, but GLOO_SOCKET_IFNAME is not; Gloo may use 127.0.0.1"
        name = gloo_interface(env["NCCL_SOCKET_IFNAME"])
        fix, advice = (f"launch.network_interface: {name}", "") if name else ("", GLOO_NAMES)
        sink.report("N02", Finding(text, help=advice, fix=fix), at="launch.env.NCCL_SOCKET_IFNAME")


def check_device_connections(plan: Plan, sink: Sink) -> None:
    """Report a wrong or slow value of CUDA_DEVICE_MAX_CONNECTIONS in ``launch.env``.

    A value is wrong if the framework requires another value or refuses it (N08). It is slow if it
    serializes kernels that the GPU could overlap (N09).
    """
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    inherited = name in plan.problem.launch.env_inherited
    given = "{from: environment}" if inherited else dict(plan.problem.launch.env).get(name)
    if given is None:
        return
    at = f"launch.env.{name}"
    # Checked first, because it does not depend on the GPU, which a launch script need not name.
    if (name, given) in refused_variables(plan):
        text = f"{name}={given}, but {plan.problem.framework} refuses this value for this layout"
        label = f"{name} must be unset, or another number"
        sink.report("N08", Finding(text, label=label, fix=f"remove {at}"), at=at)
        return
    required = {key: value for key, value, _ in framework_environment(plan)}.get(name)
    gpu = plan.problem.cluster.gpu
    cause = (Cause("cluster.gpu", f"{gpu.name} is a GPU of the generation {gpu.generation}"),)
    # Megatron relies on one hardware queue: with CUDA_DEVICE_MAX_CONNECTIONS=1 the communication of
    # tensor parallelism starts before the matrix product that overlaps it.
    if required is not None and given != required:
        text = f"{name}={given}, but {plan.problem.framework} requires {required} for this layout"
        finding = Finding(
            text, label=f"{name} must be {required}", fix=f"remove {at}", causes=cause
        )
        sink.report("N08", finding, at=at)
    elif required is None and given == "1" and gpu.compute_capability >= OVERLAPPING_KERNELS:
        text = f"{name}=1 serializes kernels that could overlap on {gpu.generation}"
        sink.report("N09", Finding(text, fix=f"remove {at}", causes=cause), at=at)


TRUST = "--trust-remote-code"
"""Flag that lets an engine run code from the checkpoint."""


def report_remote_code(plan: ServingPlan, title: str, target: str, sink: Sink) -> None:
    """Report a model that the engine called ``title`` reads only with code from the checkpoint.

    Nothing is reported if ``launch.args`` contains the flag that allows this code (V31).
    """
    problem = plan.problem
    if TRUST in problem.launch.args:
        return
    model, version = problem.model, problem.version(target)
    finding = Finding(
        f"{title} {version} reads the config of {model.name} only with {TRUST}",
        label=f"the classes of {model.family} are in the checkpoint, not in transformers",
        help=f"with this flag {title} runs code from the checkpoint: review that code first",
        fix=f"launch.args: [{TRUST}]",
        targets=(target,),
    )
    sink.report("V31", finding, at="model")


def require_internal_balancer(
    plan: ServingPlan, title: str, target: str, advice: str, sink: Sink
) -> None:
    """Report load balancing for which an engine would need several API servers (V09).

    ``advice`` is the help of the finding about the engine called ``title``.
    """
    balancer = plan.problem.endpoint.load_balancer
    if balancer == "internal":
        return
    finding = Finding(
        f"{title} has no {balancer} load balancing over data-parallel ranks",
        label="the first host of an engine has the only API server",
        help=advice,
        fix="launch.load_balancer: internal",
        targets=(target,),
    )
    sink.report("V09", finding, at="launch.load_balancer")


def explain_registry_without_separator(image: str) -> tuple[Finding, str] | None:
    """Return (finding L22, name with #) of an image whose registry pyxis takes for a part of it.

    The result is None for any other image.
    """
    found = _WITH_REGISTRY.fullmatch(image)
    if found is None:
        return None
    scheme, registry, name = found.groups(default="")
    finding = Finding(
        f"pyxis would look for the image {registry}/{name} on Docker Hub",
        label=f"# must separate the registry {registry} from the name",
        help="enroot reads [USER@][REGISTRY#]IMAGE[:TAG]; without #, the registry is Docker Hub",
    )
    return finding, f"{scheme}{registry}#{name}"
