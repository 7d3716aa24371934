"""Checks of a finished plan: arguments, ports and step sizes that vLLM rejects or runs slowly."""

from __future__ import annotations

from parc.backends.shared.launch_rules import (
    check_names,
    report_remote_code,
)
from parc.backends.shared.launchers.setup_and_variables import check_setup_and_variables
from parc.backends.shared.versions import parse_version
from parc.backends.value_range import LAST_PORT
from parc.backends.vllm.arguments import shared_arguments
from parc.backends.vllm.defaults import DP_RPC_PORT, LOW_LATENCY_TOKENS, SUPERVISOR_PORT
from parc.backends.vllm.extra_arguments import check_launch_args
from parc.backends.vllm.processes import plan_processes
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.sink import PlanCheck
from parc.compiler.ir import ServingPlan

TARGETS = ("vllm",)
CUSTOM_ALL_REDUCE = 2
"""Largest number of PCIe GPUs for vLLM's own all-reduce (distributed/custom_all_reduce.py)."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of --max-lora-rank (config/lora.py, MaxLoRARanks)."""
REMOVED = {
    "bamba": "0.23.0",
    "dots1": "0.23.0",
    "grok": "0.24.0",
    "minimax": "0.23.0",
    "minimax_m1": "0.23.0",
    "minimax_text_01": "0.23.0",
    "persimmon": "0.25.0",
}
"""Family -> last version that supports it (model_executor/models/registry.py)."""
WITHOUT_CLASS = frozenset(
    (
        *("bailing_hybrid", "biogpt", "bitnet", "codegen", "ctrl", "diffllama", "doge", "gpt_neo"),
        *("gpt_neox_japanese", "granite_docling_text", "lfm3", "nanochat", "openai-gpt", "xglm"),
        "youtu",
    )
)
"""Families without a class in model_executor/models/registry.py."""
SINCE = {
    **{"flint": "0.33", "granite_swa": "0.29", "granitemoe_swa": "0.29", "hy_v4": "0.29"},
    "kolibri1": "0.33",
}
"""Family -> first version whose registry has its class."""
REMOTE = frozenset(
    (
        *("bailing_moe", "bailing_moe_v2", "deci", "deepseek", "exaone", "internlm2", "mimo"),
        "nemotron-nas",
    )
)
"""Families whose config class is in their checkpoints, because transformers has none."""
ALLOCATOR, EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"


def check_vllm(plan: ServingPlan, sink: Sink) -> None:
    """Report parts of a plan that vLLM would reject or run slowly.

    The checks cover the model, arguments, names, ports and kernels.
    """
    for check in PLAN_CHECKS:
        check.run(plan, sink)
    check_names(plan, sink)


def _check_model_family(plan: ServingPlan, sink: Sink) -> None:
    """Report a model that vLLM cannot load (V31).

    A model that vLLM can load only with --trust-remote-code is reported if ``launch.args`` lacks
    this flag.
    """
    problem = plan.problem
    model, version = problem.model, problem.version("vllm")
    reason = _why_no_class(model.family, version)
    if reason:
        finding = Finding(
            f"vLLM {version} has no class for {model.name}", label=reason, targets=TARGETS
        )
        sink.report("V31", finding, at="model")
    if model.family in REMOTE:
        report_remote_code(plan, "vLLM", "vllm", sink)


def _why_no_class(family: str, version: str) -> str:
    """Return why vLLM has no class for a model family; empty if it has one."""
    if family in REMOVED:
        return f"{family} was removed after {REMOVED[family]}"
    if family in WITHOUT_CLASS:
        return f"no version of vLLM has a class for {family}"
    since = SINCE.get(family)
    if since and parse_version(version) < parse_version(since):
        return f"vLLM {since} is the first version with a class for {family}"
    return ""


def _check_ports(plan: ServingPlan, sink: Sink) -> None:
    """Report a port above 65535 (L20), or a port that two processes of one host use (L10).

    Only the first such port is reported.
    """
    by_host: dict[int, dict[int, str]] = {}
    for process in plan_processes(plan):
        used = by_host.setdefault(process.node, {})
        ports = [(port, "an API server") for port in process.ports]
        # Rendezvous ports are shared by all processes of an engine, but only one of them is on a
        # given host.
        flags = dict(process.flags)
        for flag in (
            "--master-port",
            "--data-parallel-rpc-port",
            "--data-parallel-supervisor-port",
        ):
            value = flags.get(flag)
            ports += [(value, flag)] if isinstance(value, int) else []
        for port, owner in ports:
            if port > LAST_PORT or port in used:
                _report_port(plan, (port, owner, used.get(port)), sink)
                return
            used[port] = owner


def _report_port(plan: ServingPlan, found: tuple[int, str, str | None], sink: Sink) -> None:
    """Report a port that is used twice on a host (L10) or is above 65535 (L20).

    ``found`` is (port, what uses the port, what else uses the port or None). A user is a flag or
    "an API server".
    """
    port, owner, other = found
    what = f"{other} uses the same port on this host" if other else f"{port} > {LAST_PORT}"
    reserved = f"vLLM itself uses ports from {DP_RPC_PORT} and {SUPERVISOR_PORT} upwards"
    at = "launch.master_port" if owner == "--master-port" else "launch.port"
    finding = Finding(
        f"port {port} is not available for {owner}",
        label=what,
        help=f"API servers use consecutive ports from launch.port on; {reserved}",
        fix="launch.port: 8000",
        targets=TARGETS,
    )
    sink.report("L10" if other else "L20", finding, at=at)


def _check_low_latency(plan: ServingPlan, sink: Sink) -> None:
    """Report low-latency kernels whose buffers are too small for the tokens of a step (V28)."""
    kernels, tokens = plan.problem.pins.all2all, plan.limits.max_num_batched_tokens
    if kernels != "deepep_low_latency" or tokens <= LOW_LATENCY_TOKENS:
        return
    finding = Finding(
        f"deepep_low_latency buffers are sized for small steps, but steps have {tokens} tokens",
        label=f"{tokens} tokens > {LOW_LATENCY_TOKENS}, vLLM's default with these kernels",
        help="either vLLM's assertion x.size(0) <= num_max_dispatch_tokens_per_rank fails at the "
        "first long prompt, or the buffers use GPU memory that the plan does not include",
        fix=f"job.max_num_batched_tokens: {LOW_LATENCY_TOKENS}",
        causes=(Cause("layout.all2all", "all2all selects the low-latency kernels"),),
        targets=TARGETS,
    )
    sink.report("V28", finding, at="job.max_num_batched_tokens")


def _check_adapter_rank(plan: ServingPlan, sink: Sink) -> None:
    """Report a rank of adapters that --max-lora-rank does not accept (V44)."""
    lora = plan.problem.service.setup.lora
    if lora is None or lora.rank in LORA_RANKS:
        return
    larger = [rank for rank in LORA_RANKS if rank > lora.rank]
    finding = Finding(
        f"vLLM has no kernels for adapters of rank {lora.rank}",
        label="the rank must be at least that of the largest adapter",
        help=f"valid values: {', '.join(map(str, LORA_RANKS))}",
        fix=f"job.lora.rank: {larger[0]}" if larger else "",
        targets=TARGETS,
    )
    sink.report("V44", finding, at="job.lora.rank")


def _check_all_reduce(plan: ServingPlan, sink: Sink) -> None:
    """Report a tp that spans more PCIe GPUs than vLLM's own all-reduce supports (T10)."""
    node, tp = plan.problem.cluster.node, plan.layout.tp
    # NVLink connects the GPUs, or a single GPU needs no all-reduce.
    if node.nvlink_domain > 1 or node.gpus == 1 or tp <= CUSTOM_ALL_REDUCE:
        return
    reductions = sum(kind.sub_layers for kind in plan.problem.model.layer_kinds)
    finding = Finding(
        "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs",
        label=f"tp {tp}: {reductions} all-reduces per token at {node.link_gb_per_s:g} GB/s",
        help="use pp, which sends one small message per stage, or replicas, which send none",
        causes=(Cause("cluster.node", f"{node.name} connects its GPUs only by PCIe"),),
    )
    sink.report("T10", finding, at="layout.tp")


def _check_arguments(plan: ServingPlan, sink: Sink) -> None:
    """Report flags in ``launch.args`` that vLLM would reject or that the plan determines."""
    check_launch_args(plan, shared_arguments(plan), sink)


def _check_allocator(plan: ServingPlan, sink: Sink) -> None:
    """Report segments that move while a connector has registered the KV cache in them (V45, V44).

    vLLM does not start (config/vllm.py, _verify_kv_transfer_compat).
    """
    setup = plan.problem.service.setup
    in_pool = setup.pool != "both"
    value = dict(plan.problem.launch.env).get(ALLOCATOR, "")
    if EXPANDABLE not in value or not (in_pool or setup.host_cache_bytes):
        return
    cause = Cause("job.pool", f"the pool is {setup.pool}")
    if not in_pool:
        cause = Cause("job.kv_offload", "the KV cache is copied to host memory")
    finding = Finding(
        f"{ALLOCATOR} moves memory that a KV cache connector has registered",
        label=f"vLLM does not start with {EXPANDABLE} and a connector",
        help=f"remove {EXPANDABLE} from the value",
        fix=f"remove launch.env.{ALLOCATOR}" if value == EXPANDABLE else "",
        causes=(cause,),
        targets=TARGETS,
    )
    sink.report("V45" if in_pool else "V44", finding, at=f"launch.env.{ALLOCATOR}")


def _check_load_balancer(plan: ServingPlan, sink: Sink) -> None:
    """Report a choice between load balancers if engines have no data-parallel ranks (E14)."""
    if plan.problem.endpoint.load_balancer != "internal" and plan.layout.dp == 1:
        finding = Finding(
            "launch.load_balancer has no effect, because dp is 1",
            label="it distributes requests over the data-parallel ranks of an engine",
            fix="remove launch.load_balancer",
            causes=(Cause("layout.dp", "dp 1"),),
        )
        sink.report("E14", finding, at="launch.load_balancer", key=True)


PLAN_CHECKS: tuple[PlanCheck[ServingPlan], ...] = (
    PlanCheck(("V31",), _check_model_family),
    PlanCheck(("F01", "F02", "F03", "V43", "V04"), _check_arguments),
    PlanCheck(("L10", "L20"), _check_ports),
    PlanCheck(("V28",), _check_low_latency),
    PlanCheck(("E14",), _check_load_balancer),
    PlanCheck(("V44",), _check_adapter_rank),
    PlanCheck(("V45",), _check_allocator),
    PlanCheck(("T10",), _check_all_reduce),
    PlanCheck(("L29", "L30", "L31", "L40"), check_setup_and_variables),
)
"""Checks that ``check_vllm`` and ``parc lint`` run."""
