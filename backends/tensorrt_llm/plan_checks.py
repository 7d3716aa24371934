"""Checks of a finished plan: models, arguments, ports and hosts that TensorRT-LLM rejects.

Sources, TensorRT-LLM 1.0 to 1.2: docs/source/models/supported-models.md (models),
_torch/pyexecutor/py_executor_creator.py (chunked prefill), llmapi/trtllm-llmapi-launch (arguments).
"""

from __future__ import annotations

import re

from parc.backends.shared.launch_rules import (
    check_names,
    require_internal_balancer,
)
from parc.backends.shared.launchers.setup_and_variables import check_setup_and_variables
from parc.backends.shared.versions import is_in_range
from parc.backends.tensorrt_llm.arguments import NAME
from parc.backends.tensorrt_llm.defaults import BLOCK_TOKENS
from parc.backends.tensorrt_llm.extra_arguments import check_launch_args
from parc.backends.value_range import LAST_PORT
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.sink import PlanCheck
from parc.compiler.ir import ServingPlan
from parc.compiler.topology.arrange_hosts import engine_hosts

TARGETS = (NAME,)
FAMILIES = {
    **dict.fromkeys(("deepseek_v3", "gemma3_text", "llama", "llama4_text", "mistral"), "1.0.0"),
    **dict.fromkeys(("mixtral", "nemotron", "qwen2", "qwen3", "qwen3_moe"), "1.0.0"),
    **dict.fromkeys(("gpt_oss", "kimi_k2"), "1.1.0"),
    **dict.fromkeys(("glm4_moe", "phi3"), "1.2.0"),
}
"""Supported family -> first version whose PyTorch backend has a class for it."""
LATENT_CHUNKS = (
    ("1.0.0", ((10, 0),)),
    ("1.1.0", ((9, 0), (10, 0))),
    ("1.2.0", ((9, 0), (10, 0), (10, 3), (12, 0))),
)
"""(First version, compute capabilities on which it supports chunked prefill of latent attention)"""
SPLIT_BY_LAUNCHER = re.compile(r"[\s*?\[]")
"""Characters at which trtllm-llmapi-launch splits or expands the words of a command."""


def check_tensorrt_llm(plan: ServingPlan, sink: Sink) -> None:
    """Report parts of a plan that TensorRT-LLM would reject."""
    for check in PLAN_CHECKS:
        check.run(plan, sink)
    check_names(plan, sink)


def _check_model_family(plan: ServingPlan, sink: Sink) -> None:
    """Report a model for which the version has no class (V31)."""
    model, version = plan.problem.model, plan.problem.version(NAME)
    since = FAMILIES.get(model.family)
    if since is not None and is_in_range(version, since, None):
        return
    known = "no version that PARC plans has one" if since is None else f"it exists since {since}"
    finding = Finding(
        f"TensorRT-LLM {version} has no class for {model.name}",
        label=f"family {model.family}: {known}",
        help=f"supported families: {', '.join(sorted(FAMILIES))}",
        fix="" if since is None else f"versions.{NAME}: {since}",
        causes=(Cause(f"versions.{NAME}", f"version {version}"),),
        targets=TARGETS,
    )
    sink.report("V31", finding, at="model")


def _check_load_balancer(plan: ServingPlan, sink: Sink) -> None:
    """Report load balancing over data-parallel ranks other than the internal one (V09)."""
    require_internal_balancer(plan, "TensorRT-LLM", NAME, "", sink)


def _check_ports(plan: ServingPlan, sink: Sink) -> None:
    """Report API servers whose ports would be above 65535 (L20)."""
    first = plan.problem.endpoint.port
    engines = max(plan.placement.ranks_per_node // plan.layout.engine_gpus, 1)
    last = first + engines - 1
    if last <= LAST_PORT:
        return
    finding = Finding(
        f"port {last} is not available for an API server",
        label=f"{engines} engines per host use the ports {first} to {last}; {last} > {LAST_PORT}",
        fix="launch.port: 8000",
        targets=TARGETS,
    )
    sink.report("L20", finding, at="launch.port")


def _check_blocks(plan: ServingPlan, sink: Sink) -> None:
    """Report a block size of the KV cache that the version does not support (V04)."""
    tokens, version = plan.problem.service.block_tokens, plan.problem.version(NAME)
    fixed = not is_in_range(version, "1.1.0", None)
    if tokens == BLOCK_TOKENS or (not fixed and tokens > 1 and tokens & (tokens - 1) == 0):
        return
    why = f"{version} has no setting for it" if fixed else "it must be a power of 2"
    finding = Finding(
        f"TensorRT-LLM {version} does not support cache blocks of {tokens} tokens",
        label=f"block_tokens {tokens}: {why}",
        fix=f"job.block_tokens: {BLOCK_TOKENS}",
        targets=TARGETS,
    )
    sink.report("V04", finding, at="job.block_tokens")


def _check_latent_chunks(plan: ServingPlan, sink: Sink) -> None:
    """Report long prompts of a model with latent attention on a GPU without chunked prefill (V04).

    TensorRT-LLM then turns chunked prefill off with a warning, and rejects prompts that are longer
    than a step.
    """
    problem, limits = plan.problem, plan.limits
    tokens, longest = limits.max_num_batched_tokens, limits.max_model_len
    if problem.model.attention.latent is None or tokens >= longest:
        return
    gpu, version = problem.cluster.gpu, problem.version(NAME)
    lists = [valid for since, valid in LATENT_CHUNKS if is_in_range(version, since, None)]
    if gpu.compute_capability in lists[-1]:
        return
    finding = Finding(
        f"TensorRT-LLM {version} has no chunked prefill of latent attention on {gpu.name}",
        label=f"prompts of more than {tokens} tokens would be rejected; the longest has {longest}",
        help="compute capabilities with chunked prefill: "
        + ", ".join(f"{major}.{minor}" for major, minor in lists[-1]),
        fix=f"job.max_num_batched_tokens: {longest}",
        causes=(Cause("cluster.gpu", f"the GPU is {gpu.name}"),),
        targets=TARGETS,
    )
    sink.report("V04", finding, at="job.max_num_batched_tokens")


def _hosts_per_engine(plan: ServingPlan) -> int:
    """Return the number of hosts per engine."""
    return engine_hosts(plan.layout, plan.problem.cluster.node.gpus) or 1


def _check_launchers(plan: ServingPlan, sink: Sink) -> None:
    """Report launchers that cannot start an engine on several hosts (V50).

    Its ranks need one MPI job: start.sh starts it with srun or mpirun on the first host.
    """
    hosts, emit = _hosts_per_engine(plan), plan.problem.emit
    reasons = {
        "kubernetes": "mpirun needs ssh between pods, which the manifest does not set up",
        "slurm": "srun is not available inside the container",
    }
    blocked = "kubernetes" if "kubernetes" in emit else ""
    if "slurm" in emit and plan.problem.launch.slurm.container_image is not None:
        blocked = blocked or "slurm"
    if hosts == 1 or not blocked:
        return
    container = blocked == "slurm"
    kept = ", ".join(name for name in emit if name != blocked)
    finding = Finding(
        f"the target {blocked} cannot start an engine of TensorRT-LLM on {hosts} hosts",
        label=reasons[blocked],
        help="engines within one host need no MPI launcher",
        fix="remove launch.slurm.container_image" if container else f"emit: [{kept}]",
        causes=(Cause("layout.tp", f"an engine has {plan.layout.engine_gpus} GPUs"),),
        targets=TARGETS,
    )
    sink.report("V50", finding, at="launch.slurm.container_image" if container else "emit")


def _check_words(plan: ServingPlan, sink: Sink) -> None:
    """Report words that trtllm-llmapi-launch would change (F03).

    It starts an engine on several hosts, and expands the command line without quotes.
    """
    if _hosts_per_engine(plan) == 1:
        return
    words = [("job.checkpoint", plan.problem.service.checkpoint)]
    words += [(f"launch.args[{at}]", one) for at, one in enumerate(plan.problem.launch.args)]
    for path, word in words:
        if SPLIT_BY_LAUNCHER.search(word):
            finding = Finding(
                f"{word[:60]!r} cannot be an argument of an engine on several hosts",
                label="trtllm-llmapi-launch would split or expand it",
                help="remove spaces and the characters * ? [",
                targets=TARGETS,
            )
            sink.report("F03", finding, at=path)


PLAN_CHECKS: tuple[PlanCheck[ServingPlan], ...] = (
    PlanCheck(("V31",), _check_model_family),
    PlanCheck(("F01", "F02", "F03", "V43"), check_launch_args),
    PlanCheck(("V09",), _check_load_balancer),
    PlanCheck(("L20",), _check_ports),
    PlanCheck(("V04",), _check_blocks),
    PlanCheck(("V04",), _check_latent_chunks),
    PlanCheck(("V50",), _check_launchers),
    PlanCheck(("F03",), _check_words),
    PlanCheck(("L29", "L30", "L31", "L40"), check_setup_and_variables),
)
"""Checks that ``check_tensorrt_llm`` and ``parc lint`` run."""
