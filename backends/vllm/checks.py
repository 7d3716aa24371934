"""What vLLM would refuse, or regret, in a finished plan: extra arguments, ports, long steps."""

from __future__ import annotations

from parc.backends.vllm.arguments import arguments
from parc.backends.vllm.commands import processes
from parc.backends.vllm.defaults import DP_RPC_PORT, LOW_LATENCY_TOKENS, SUPERVISOR_PORT
from parc.backends.vllm.extra_arguments import check_extra
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import ServingPlan

TARGETS = ("vllm",)
LAST_PORT = 65535
REMOVED = {"grok": "0.24.0"}
"""Family -> the last version that had it (model_executor/models/registry.py)."""
REMOTE = frozenset({"bailing_moe", "bailing_moe_v2", "mimo"})
"""Families whose config class lies beside their checkpoints: transformers has none."""
TRUST = "--trust-remote-code"


def check_vllm(plan: ServingPlan, sink: Sink) -> None:
    """Report F01 to F03 on ``launch.args``, L10 and L20 on ports, V28 and V31."""
    _check_family(plan, sink)
    check_extra(plan, arguments(plan), sink)
    _check_ports(plan, sink)
    _check_low_latency(plan, sink)


def _check_family(plan: ServingPlan, sink: Sink) -> None:
    problem = plan.problem
    model, version = problem.model, problem.version("vllm")
    if model.family in REMOVED:
        finding = Finding(
            f"vLLM {version} has no class for {model.name}",
            label=f"{model.family} was removed after {REMOVED[model.family]}",
            targets=TARGETS,
        )
        sink.report("V31", finding, at="model")
    if model.family in REMOTE and TRUST not in problem.launch.args:
        finding = Finding(
            f"vLLM {version} reads the config of {model.name} only with {TRUST}",
            label=f"{model.family}: its classes lie beside its checkpoint, not in transformers",
            help="the flag lets the checkpoint run code of its own: read it first",
            fix=f"launch.args: [{TRUST}]",
            targets=TARGETS,
        )
        sink.report("V31", finding, at="model")


def _check_ports(plan: ServingPlan, sink: Sink) -> None:
    """Ports of one host must differ; vLLM would wait for one that never answers."""
    by_host: dict[int, dict[int, str]] = {}
    for process in processes(plan):
        taken = by_host.setdefault(process.node, {})
        ports = [(port, "an API server") for port in process.ports]
        flags = dict(process.flags)
        for flag in (
            "--master-port",
            "--data-parallel-rpc-port",
            "--data-parallel-supervisor-port",
        ):
            value = flags.get(flag)
            ports += [(value, flag)] if isinstance(value, int) else []
        for port, owner in ports:
            if port > LAST_PORT or port in taken:
                _report_port(plan, (port, owner, taken.get(port)), sink)
                return
            taken[port] = owner


def _report_port(plan: ServingPlan, found: tuple[int, str, str | None], sink: Sink) -> None:
    port, owner, other = found
    what = f"{other} has it on the same host" if other else f"{port} > {LAST_PORT}"
    own = f"{DP_RPC_PORT} and {SUPERVISOR_PORT} upwards are vLLM's own"
    at = "launch.master_port" if owner == "--master-port" else "launch.port"
    finding = Finding(
        f"port {port} cannot be that of {owner}",
        label=what,
        help=f"API servers count up from launch.port; {own}",
        fix="launch.port: 8000",
        targets=TARGETS,
    )
    sink.report("L10" if other else "L20", finding, at=at)


def _check_low_latency(plan: ServingPlan, sink: Sink) -> None:
    """V28: kernels whose buffers hold a few tokens a rank, and steps that have many."""
    kernels, tokens = plan.problem.pins.all2all, plan.limits.max_num_batched_tokens
    if kernels != "deepep_low_latency" or tokens <= LOW_LATENCY_TOKENS:
        return
    finding = Finding(
        f"deepep_low_latency with steps of {tokens} tokens: its buffers are made for few",
        label=f"{tokens} > {LOW_LATENCY_TOKENS}, what vLLM takes by itself in this mode",
        help="x.size(0) <= num_max_dispatch_tokens_per_rank fails at the first long prompt, or "
        "the buffers take GPU memory that the plan does not count",
        fix=f"job.max_num_batched_tokens: {LOW_LATENCY_TOKENS}",
        causes=(Cause("layout.all2all", "the kernels are pinned here"),),
        targets=TARGETS,
    )
    sink.report("V28", finding, at="job.max_num_batched_tokens")
