"""What breaks a launch whoever starts it: host names, environment, interface, port."""

from __future__ import annotations

import re
from collections import Counter

from parc.backends.registry import framework_of
from parc.backends.shared.launch_environment import framework_environment
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import AnyPlan, Plan, ServingPlan

HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWNED = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("HIP_VISIBLE_DEVICES", "PARC_DIR", "PARC_ANY_SHAPE"),
}
"""Variables that say which rank runs where; the launch scripts and torchrun set them."""
SHELL_OWNED = {"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "BASH_ENV", "IFS"}
TUNED_BY_NCCL = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"}
NOT_ROUTED = ("lo", "docker", "veth", "virbr", "cni")
OVERLAPPING_KERNELS = (10, 0)
"""Compute capability from which kernels overlap over several hardware queues (Blackwell)."""
_SHOWN = 4
"""Offenders that a message names before it counts the rest."""


def check_launch(plan: AnyPlan, sink: Sink) -> None:
    """Report every finding on hosts, ``launch.env``, interface, port and arguments."""
    _check_hosts(plan, sink)
    _check_words(plan, sink)
    _check_interface(plan, sink)
    for name, value in plan.problem.launch.env:
        _check_variable(plan, sink, name, value)
    check_fabric(plan, sink)
    if not isinstance(plan, ServingPlan):
        check_connections(plan, sink)


def listed(names: list[str]) -> str:
    """The first few of ``names``, quoted, and how many more."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


def _check_hosts(plan: AnyPlan, sink: Sink) -> None:
    names = [host.name for host in plan.placement.hosts]
    bad = [name for name in names if not HOST_NAME.fullmatch(name)]
    twice = [name for name, times in Counter(names).items() if times > 1]
    help_text = "letters, digits, dot, dash and underscore, each host once"
    if bad:
        text = f"{listed(bad)} cannot be a host name"
        sink.report("L11", Finding(text, label="not a host name", help=help_text), at="cluster")
    if twice:
        text = f"{listed(twice)} would get two node ranks"
        sink.report("L11", Finding(text, label="named twice", help=help_text), at="cluster")
    if len(names) > 1 and names[0].startswith(("localhost", "127.")):
        text = f"node rank 0 is {names[0]!r}, which every other host takes for itself"
        sink.report("L09", Finding(text, help="a name that all hosts resolve alike"), at="cluster")


def _check_words(plan: AnyPlan, sink: Sink) -> None:
    launch = plan.problem.launch
    words = [("launch.program", launch.program)]
    words += [(f"launch.args[{index}]", word) for index, word in enumerate(launch.args)]
    words += [(f"launch.env.{name}", value) for name, value in launch.env]
    for path, word in words:
        if "\0" in word:
            text = f"{path} holds a NUL byte, which no program can be given"
            sink.report("L16", Finding(text, fix="remove the NUL byte"), at=path)
    if not launch.program.strip() and not _brings_program(plan):
        finding = Finding("the program to launch is empty", fix="launch.program: pretrain_gpt.py")
        sink.report("L15", finding, at="launch.program")
    if not 1024 <= launch.master_port <= 65535:
        text = f"port {launch.master_port} cannot be the rendezvous port"
        label = f"{launch.master_port} is not in 1024..65535"
        sink.report("L20", Finding(text, label=label), at="launch.master_port")


def _brings_program(plan: AnyPlan) -> bool:
    """Whether something starts where the spec names no program: an engine, or emitted code."""
    if isinstance(plan, ServingPlan):
        return True
    problem = plan.problem
    own = framework_of(problem).default_program(problem.model, problem.version(problem.framework))
    return not problem.launch.program and not own


def _check_interface(plan: AnyPlan, sink: Sink) -> None:
    name = plan.problem.launch.network_interface
    if name is None or len(plan.placement.hosts) == 1:
        return
    at = "launch.network_interface"
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+", name):
        text = f"{name!r} is not the name of a network interface"
        help_text = "one plain name such as eth0: Gloo knows no patterns"
        sink.report("N01", Finding(text, help=help_text), at=at)
    elif name.startswith(NOT_ROUTED):
        text = f"interface {name} does not reach other hosts"
        sink.report("N01", Finding(text, help="an interface that all hosts can route"), at=at)


def _check_variable(plan: AnyPlan, sink: Sink, name: str, value: str) -> None:
    """Name and ownership of one variable of ``launch.env``."""
    if not VARIABLE_NAME.fullmatch(name):
        text = f"{name!r} cannot be the name of an environment variable"
        help_text = "letters, digits and underscore, not a digit first"
        sink.report("L18", Finding(text, help=help_text), at="launch.env")
        return
    at = f"launch.env.{name}"
    if name in OWNED or name.startswith(("SLURM_", "SRUN_")):
        text = f"{name} says which rank runs where, and the launch scripts set it"
        sink.report("L14", Finding(text, fix=f"remove launch.env.{name}"), at=at, key=True)
    if name in SHELL_OWNED:
        text = f"{name} belongs to the shell that runs the launch script"
        sink.report("L18", Finding(text, fix=f"remove launch.env.{name}"), at=at, key=True)
    if name in TUNED_BY_NCCL:
        text = f"{name}={value} pins what NCCL tunes by message size and topology"
        sink.report("N14", Finding(text, fix=f"remove launch.env.{name}"), at=at)


def check_fabric(plan: AnyPlan, sink: Sink) -> None:
    """N02, N04 and N06: variables of NCCL against the network between hosts."""
    env = dict(plan.problem.launch.env)
    kind = plan.problem.cluster.fabric.kind
    rdma = kind in {"infiniband", "roce"}
    cause = (Cause("cluster.fabric", f"the fabric is {kind}"),)
    if rdma and env.get("NCCL_IB_DISABLE", "0") != "0":
        text = f"NCCL_IB_DISABLE turns RDMA off on {kind}: sockets, about ten times slower"
        sink.report("N04", Finding(text, causes=cause), at="launch.env.NCCL_IB_DISABLE")
    if rdma and env.get("NCCL_NET", "IB").lower() == "socket":
        text = f"NCCL_NET=Socket leaves RDMA unused on {kind}: about ten times slower"
        sink.report("N04", Finding(text, causes=cause), at="launch.env.NCCL_NET")
    if kind == "roce" and "NCCL_IB_GID_INDEX" in env:
        text = "one NCCL_IB_GID_INDEX for all hosts; the index of the RoCE v2 address may differ"
        help_text = "leave it out: NCCL 2.21 and later finds it on each host"
        at = "launch.env.NCCL_IB_GID_INDEX"
        sink.report("N06", Finding(text, help=help_text, causes=cause), at=at)
    gloo = "GLOO_SOCKET_IFNAME" in env or plan.problem.launch.network_interface is not None
    if "NCCL_SOCKET_IFNAME" in env and not gloo:
        text = "NCCL_SOCKET_IFNAME is set and GLOO_SOCKET_IFNAME is not: Gloo may pick 127.0.0.1"
        fix = f"launch.network_interface: {env['NCCL_SOCKET_IFNAME']}"
        sink.report("N02", Finding(text, fix=fix), at="launch.env.NCCL_SOCKET_IFNAME")


def check_connections(plan: Plan, sink: Sink) -> None:
    """N08 and N09: CUDA_DEVICE_MAX_CONNECTIONS against what the framework asserts."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    said = dict(plan.problem.launch.env).get(name)
    asked = {key: value for key, value, _ in framework_environment(plan)}.get(name)
    gpu = plan.problem.cluster.gpu
    if said is None:
        return
    at = f"launch.env.{name}"
    cause = (Cause("cluster.gpu", f"{gpu.name} is {gpu.generation}"),)
    if asked is not None and said != asked:
        text = f"{name}={said}, and {plan.problem.framework} asserts {asked} for this layout"
        finding = Finding(text, label=f"must be {asked}", fix=f"remove {at}", causes=cause)
        sink.report("N08", finding, at=at)
    elif asked is None and said == "1" and gpu.compute_capability >= OVERLAPPING_KERNELS:
        text = f"{name}=1 serialises kernels that {gpu.generation} would overlap"
        sink.report("N09", Finding(text, fix=f"remove {at}", causes=cause), at=at)
