"""Checks of a finished plan: models, arguments, ports and steps that SGLang rejects."""

from __future__ import annotations

from collections.abc import Iterator

from parc.backends.sglang.extra_arguments import check_launch_args
from parc.backends.sglang.processes import RENDEZVOUS_PORTS, plan_processes, rendezvous_port
from parc.backends.shared.launch_rules import (
    check_names,
    report_remote_code,
    require_internal_balancer,
)
from parc.backends.shared.launchers.setup_and_variables import check_setup_and_variables
from parc.backends.value_range import LAST_PORT
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.sink import PlanCheck
from parc.compiler.ir import ServingPlan

TARGETS = ("sglang",)
LOW_LATENCY_TOKENS = 128
"""Tokens per rank for which DeepEP's low-latency buffers are allocated by default
(environ.py, SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK)."""
DISPATCH_TOKENS = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
WITHOUT_CLASS = frozenset(
    (
        *("aria_text", "axk1", "biogpt", "bitnet", "bloom", "codegen", "ctrl", "cwm", "diffllama"),
        *("doge", "dots1", "falcon", "flex_olmo", "flint", "glm", "glm_image_text", "gpt_neo"),
        *("gpt_neox", "gpt_neox_japanese", "granite_docling_text", "helium", "hyperclovax"),
        *("jais2", "kolibri1", "molmo2_text", "mpt", "nanochat", "nemotron", "olmo3"),
        *("openai-gpt", "seed_oss", "smollm3", "solar_open", "vaultgemma", "xglm", "youtu"),
        *("bamba", "jamba", "lfm3", "minimax", "minimax_m1", "minimax_text_01"),
    )
)
"""Families without a class in models/, which SGLang runs with transformers' own modules."""
REMOTE_CODE = frozenset(
    {"bailing_moe", "bailing_moe_v2", "deci", "deepseek", "internlm2", "mimo", "nemotron-nas"}
)
"""Families whose config class is in their checkpoints, because transformers has none."""


def check_sglang(plan: ServingPlan, sink: Sink) -> None:
    """Report parts of a plan that SGLang would reject or run slowly."""
    for check in PLAN_CHECKS:
        check.run(plan, sink)
    check_names(plan, sink)


def _check_model_family(plan: ServingPlan, sink: Sink) -> None:
    """Report a model for which SGLang has no class, or needs --trust-remote-code (V31)."""
    problem = plan.problem
    model, version = problem.model, problem.version("sglang")
    if model.family in WITHOUT_CLASS:
        finding = Finding(
            f"SGLang {version} has no class for {model.name}",
            label=f"family {model.family}",
            help="SGLang would run the modules of transformers, which PARC does not plan",
            targets=TARGETS,
        )
        sink.report("V31", finding, at="model")
    if model.family in REMOTE_CODE:
        report_remote_code(plan, "SGLang", "sglang", sink)


def _check_load_balancer(plan: ServingPlan, sink: Sink) -> None:
    """Report load balancing over data-parallel ranks other than SGLang's internal one (V09)."""
    advice = "sglang_router balances the load over engines (replicas)"
    require_internal_balancer(plan, "SGLang", "sglang", advice, sink)


def _ports_of_host(plan: ServingPlan, node: int) -> Iterator[tuple[int, str]]:
    """Yield (port, its user) for all ports that processes of the host ``node`` use.

    The router can run on any host, so its port must be free on all hosts.
    """
    if plan.layout.replicas > 1:
        yield plan.problem.endpoint.router_port, "the router"
    running = [process for process in plan_processes(plan) if process.node == node]
    for slot, process in enumerate(running):
        yield from ((port, "an API server") for port in process.ports)
        if any(name == "--dist-init-addr" for name, _ in process.flags):
            first = rendezvous_port(plan, slot)
            yield from ((first + one, "--dist-init-addr") for one in range(RENDEZVOUS_PORTS))


def _check_ports(plan: ServingPlan, sink: Sink) -> None:
    """Report a port above 65535 (L20), or a port that is used twice on a host (L10).

    Only the first such port is reported. It is enough to check the first host: the other hosts use
    the same ports, or fewer, because only the first host of an engine has an API server.
    """
    used: dict[int, str] = {}
    for port, owner in _ports_of_host(plan, 0):
        if port <= LAST_PORT and port not in used:
            used[port] = owner
            continue
        other = used.get(port)
        rendezvous = owner == "--dist-init-addr"
        finding = Finding(
            f"port {port} is not available for {owner}",
            label=f"{other} uses the same port" if other else f"{port} > {LAST_PORT}",
            help="API servers use consecutive ports from launch.port on, and each engine "
            f"{RENDEZVOUS_PORTS} ports from launch.master_port on",
            fix="launch.master_port: 29501" if rendezvous else "launch.port: 8000",
            targets=TARGETS,
        )
        at = "launch.master_port" if rendezvous else "launch.port"
        sink.report("L10" if other else "L20", finding, at=at)
        return


def _check_pages(plan: ServingPlan, sink: Sink) -> None:
    """Report a number of tokens per step that is not divisible by the page size (V04)."""
    tokens, page = plan.limits.max_num_batched_tokens, plan.problem.service.block_tokens
    if tokens % page == 0:
        return
    finding = Finding(
        "chunked_prefill_size must be divisible by page_size",
        label=f"{tokens} % {page} = {tokens % page}, must be 0",
        fix=f"job.max_num_batched_tokens: {max(tokens // page, 1) * page}",
        causes=(Cause("job.block_tokens", f"pages of {page} tokens"),),
        targets=TARGETS,
    )
    sink.report("V04", finding, at="job.max_num_batched_tokens")


def _check_headroom(plan: ServingPlan, sink: Sink) -> None:
    """Report a headroom that is too small for the activations of a step (V02).

    SGLang uses the whole memory fraction for weights and cache; activations, CUDA graphs and
    communication buffers must fit in the headroom.
    """
    gpu, limits = plan.problem.cluster.gpu, plan.limits
    free = gpu.memory_bytes * (1 - limits.gpu_memory_utilization)
    need = max(stage.overhead_bytes for stage in plan.stages)
    if need <= free:
        return
    percent = -int(-100 * need // gpu.memory_bytes)
    finding = Finding(
        f"activations and buffers need {need / 2**30:.1f} GiB, but --mem-fraction-static "
        f"{limits.gpu_memory_utilization:g} leaves {free / 2**30:.1f} GiB",
        label=f"a step processes {limits.max_num_batched_tokens} tokens",
        help="SGLang uses the whole fraction for weights and KV cache",
        fix=f"goals.memory_headroom: {percent}%",
        targets=TARGETS,
    )
    sink.report("V02", finding, at="goals.memory_headroom")


def _check_low_latency(plan: ServingPlan, sink: Sink) -> None:
    """Report decode steps with more tokens than DeepEP's low-latency buffers (V28)."""
    problem, limits = plan.problem, plan.limits
    names = {*problem.launch.env_inherited, *(name for name, _ in problem.launch.env)}
    most = LOW_LATENCY_TOKENS * plan.layout.tp
    if problem.pins.all2all != "deepep_low_latency" or limits.max_num_seqs <= most:
        return
    if DISPATCH_TOKENS in names:
        return
    finding = Finding(
        f"DeepEP's low-latency buffers are sized for {LOW_LATENCY_TOKENS} tokens per rank, but "
        f"{limits.max_num_seqs} requests decode together",
        label=f"{limits.max_num_seqs} requests > {LOW_LATENCY_TOKENS} x tp {plan.layout.tp}",
        help=f"or set {DISPATCH_TOKENS} in launch.env; the buffers need GPU memory",
        fix=f"job.max_num_seqs: {most}",
        causes=(Cause("layout.all2all", "all2all selects the low-latency kernels"),),
        targets=TARGETS,
    )
    sink.report("V28", finding, at="job.max_num_seqs")


def _check_host_cache(plan: ServingPlan, sink: Sink) -> None:
    """Report less than 1 GB of host memory per GPU for copies of the cache (V44)."""
    copies, gpus = plan.problem.service.setup.host_cache_bytes, plan.layout.rank_gpus
    if not copies or copies >= gpus * 1e9:
        return
    finding = Finding(
        f"SGLang allocates whole GB per GPU, but {gpus} GPUs share {copies / 1e9:g} GB",
        label=f"{copies / 1e9:g} GB / {gpus} < 1 GB",
        fix=f"job.kv_offload.size: {gpus}GB",
        causes=(Cause("layout.tp", f"tp {plan.layout.tp}"),),
        targets=TARGETS,
    )
    sink.report("V44", finding, at="job.kv_offload.size")


def _check_adapters_with_draft(plan: ServingPlan, sink: Sink) -> None:
    """Report LoRA adapters together with a draft model (V40)."""
    setup = plan.problem.service.setup
    draft = setup.speculative
    if setup.lora is None or draft is None or draft.method != "draft-model":
        return
    finding = Finding(
        "LoRA is only compatible with NGRAM, EAGLE and EAGLE3 speculative decoding, not STANDALONE",
        label="draft-model is STANDALONE",
        help="valid methods with job.lora: eagle, eagle3, mtp, ngram",
        fix="remove job.speculative",
        causes=(Cause("job.lora", "the adapters are set here"),),
        targets=TARGETS,
    )
    sink.report("V40", finding, at="job.speculative.method")


PLAN_CHECKS: tuple[PlanCheck[ServingPlan], ...] = (
    PlanCheck(("V31",), _check_model_family),
    PlanCheck(("F01", "F02", "F03", "V43"), check_launch_args),
    PlanCheck(("V09",), _check_load_balancer),
    PlanCheck(("L10", "L20"), _check_ports),
    PlanCheck(("V04",), _check_pages),
    PlanCheck(("V02",), _check_headroom),
    PlanCheck(("V28",), _check_low_latency),
    PlanCheck(("V44",), _check_host_cache),
    PlanCheck(("V40",), _check_adapters_with_draft),
    PlanCheck(("L29", "L30", "L31", "L40"), check_setup_and_variables),
)
"""Checks that ``check_sglang`` and ``parc lint`` run."""
