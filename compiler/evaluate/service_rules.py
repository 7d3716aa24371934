"""Rules on hosts and device memory that apply to serving layouts of every engine.

The same memory model gives the limits on requests that PARC passes to an engine.
"""

from __future__ import annotations

from math import gcd

from parc.backends.base import Engine
from parc.backends.shared.strategies import launcher_rules, serving_strategy_rules
from parc.compiler.cost.serving.stages import service_cache_blocks, stage_caches
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_count, format_values
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.serving_plan import EngineLimits, ServingRule, StageCache
from parc.compiler.topology.arrange_hosts import engine_hosts, replica_counts, service_hosts

GIB = 2**30
HOST_SHARE = 0.9
"""Largest fraction of host memory for copies of the KV cache. The engines allocate and pin them at
the start; the operating system and the processes themselves need the remaining 10 %."""


def service_rules(problem: ServingProblem, engine: Engine) -> tuple[ServingRule, ...]:
    """Return all rules for a serving layout.

    They are rules of strategies, engine, launchers, hosts and device memory.
    """
    unsupported = serving_strategy_rules(engine.name, engine.strategies)
    launchers = launcher_rules(problem)
    own = (*unsupported, *engine.rules(problem), *launchers)
    return (*own, *DRAFT, *PLACEMENT, *HOST_COPIES, *_memory_rules())


def _cannot_split_draft(problem: ServingProblem, layout: ServingLayout) -> bool:
    draft = problem.service.setup.speculative
    return (
        draft is not None
        and draft.model is not None
        and draft.model.attention.heads % layout.tp > 0
    )


def _explain_unsplit_draft(problem: ServingProblem, layout: ServingLayout) -> Finding:
    draft = problem.service.setup.speculative
    assert draft is not None
    assert draft.model is not None
    heads, tp = draft.model.attention.heads, layout.tp
    return Finding(
        f"the {heads} attention heads of the draft are not divisible by tp {tp}",
        label=f"{heads} % {tp} = {heads % tp}, must be 0; the draft is split over the same ranks",
        help=f"valid tp: {format_values(divisors(heads))}",
        fix=f"layout.tp: {gcd(heads, tp)}",
        causes=(Cause("job.speculative.model", f"the draft is {draft.model.name}"),),
    )


DRAFT: tuple[ServingRule, ...] = (
    ServingRule(
        "V42",
        ("layout.tp", "job.speculative.model"),
        _cannot_split_draft,
        _explain_unsplit_draft,
        ("tp",),
    ),
)
"""Rule on the draft of speculative decoding."""


def _splits_groups_over_hosts(problem: ServingProblem, layout: ServingLayout) -> bool:
    hosts = engine_hosts(layout, problem.cluster.node.gpus)
    return hosts is None or hosts > problem.cluster.nodes


def _explain_split_groups(problem: ServingProblem, layout: ServingLayout) -> Finding:
    cluster, gpus = problem.cluster, layout.engine_gpus
    needed, host = engine_hosts(layout, cluster.node.gpus), cluster.node.gpus
    product = f"tp {layout.tp} x pp {layout.pp}"
    product += f" x pcp {layout.pcp}" if layout.pcp > 1 else ""
    product += f" x dp {layout.dp}" if layout.dp > 1 else ""
    if gpus > cluster.gpus:
        return Finding(
            f"the world size ({gpus}) is larger than the number of GPUs ({cluster.gpus})",
            label=f"{product} = {gpus}, but {format_count(cluster.nodes, 'host')} x {host} GPUs = "
            f"{cluster.gpus}",
            help="reduce tp, pp or dp, or add hosts",
            causes=(Cause("cluster", f"the cluster has {cluster.gpus} GPUs"),),
        )
    return Finding(
        f"an engine of {format_count(gpus, 'GPU')} cannot be spread evenly over hosts of "
        f"{format_count(host, 'GPU')}: hosts would "
        "split tensor groups or data-parallel ranks unevenly",
        label=f"{product} = {gpus} ranks on {-(-gpus // host)} hosts; whole groups per host need "
        + (
            f"{needed} hosts, the cluster has {cluster.nodes}"
            if needed
            else "another number of GPUs"
        ),
        help="each host must contain whole tensor groups, or each group must fill whole hosts",
        fix="layout.pp: auto",
        causes=(Cause("cluster.node", f"each host has {host} GPUs"),),
    )


def _has_too_many_replicas(problem: ServingProblem, layout: ServingLayout) -> bool:
    if layout.replicas == 1 or _splits_groups_over_hosts(problem, layout):
        return False
    hosts = service_hosts(layout, problem.cluster.node.gpus)
    return hosts is None or hosts > problem.cluster.nodes


def _explain_too_many_replicas(problem: ServingProblem, layout: ServingLayout) -> Finding:
    cluster = problem.cluster
    counts = replica_counts(layout, cluster.node.gpus, cluster.nodes)
    below = [count for count in counts if count <= layout.replicas]
    need = service_hosts(layout, cluster.node.gpus)
    return Finding(
        f"{format_count(layout.replicas, 'engine')} of {format_count(layout.engine_gpus, 'GPU')} "
        f"cannot be spread evenly over {format_count(cluster.nodes, 'host')} of "
        f"{format_count(cluster.node.gpus, 'GPU')}",
        label="the engines need "
        + (f"{format_count(need, 'host')}, " if need else "")
        + "with the same number on each host",
        help=f"valid replicas: {format_values(counts)}",
        fix=f"layout.replicas: {below[-1]}" if below else "",
        causes=(Cause("cluster", f"the cluster has {cluster.gpus} GPUs"),),
    )


def _explain_no_cache(problem: ServingProblem, layout: ServingLayout) -> Finding:
    stage = min(stage_caches(problem, layout), key=lambda one: one.cache_bytes - one.weights_bytes)
    gpu, share = problem.cluster.gpu, 1 - problem.goals.memory_headroom
    needed = stage.weights_bytes + stage.overhead_bytes
    return Finding(
        # The words of vLLM, so that a search for its error message finds this rule.
        "No available memory for the cache blocks: weights and activations fill the device",
        label=f"{_format_gib(stage.weights_bytes)} GiB weights + "
        f"{_format_gib(stage.overhead_bytes)} GiB activations and graphs = "
        f"{_format_gib(needed)} GiB; usable: {_format_gib(gpu.memory_bytes * share)} GiB "
        f"({_format_gib(gpu.memory_bytes)} GiB x {share:.2f})",
        help="increase tp, pp or ep, use weights of fewer bits, or reduce max_num_batched_tokens",
        causes=(
            Cause("model", f"{problem.model.name} is split over {layout.engine_gpus} GPUs"),
            Cause("cluster.gpu", f"{gpu.name} has {_format_gib(gpu.memory_bytes)} GiB"),
        ),
    )


def _explain_exceeded_cache(problem: ServingProblem, layout: ServingLayout) -> Finding:
    stages, service = stage_caches(problem, layout), problem.service
    stage = min(stages, key=lambda one: one.cache_bytes / one.longest_bytes)
    fits = longest_request_that_fits(problem, layout, stages)
    blocks = service_cache_blocks(problem, layout)
    per_token = blocks.attention * stage.block_bytes / blocks.tokens
    states = (
        f" + {_format_gib(blocks.blocks_for_states * stage.block_bytes)} GiB of states"
        if blocks.blocks_for_states
        else ""
    )
    return Finding(
        # The words of vLLM, so that a search for its error message finds this rule.
        "To serve at least one request with the model's max seq len "
        f"({service.longest_request_tokens}), {stage.longest_bytes / GIB:.2f} GiB KV cache is "
        "needed, which is larger than the "
        f"available KV cache memory ({stage.cache_bytes / GIB:.2f} GiB)",
        label=f"{service.longest_request_tokens} tokens x {per_token:,.0f} B{states} on a rank of "
        f"stage {stage.stage}",
        help=(f"the estimated maximum model length is {fits}; or " if fits else "")
        + "increase tp or pp, or set kv_precision fp8",
        # No fix: a shorter length is not what the user asked for.
        causes=(Cause("model", f"weights use {_format_gib(stage.weights_bytes)} GiB per GPU"),),
    )


def longest_request_that_fits(
    problem: ServingProblem, layout: ServingLayout, stages: tuple[StageCache, ...]
) -> int:
    """Return the length in tokens of the longest request whose cache fits on every pipeline stage.

    The result is at most the context length of the model. It assumes that each layer stores all
    tokens; in a model whose layers have a sliding window, longer requests might fit.
    """
    context = problem.service.context
    blocks = min(stage.blocks for stage in stages)
    tokens = service_cache_blocks(problem, layout).longest_request_tokens(blocks, layout.dcp)
    return context if tokens is None else min(tokens, context)


def _format_gib(count_bytes: float) -> str:
    return f"{count_bytes / GIB:.1f}"


def _copies_bytes_per_host(problem: ServingProblem, layout: ServingLayout) -> float:
    """Return the host memory for copies of the KV cache on each host, of all its processes.

    A data-parallel rank over several hosts has an equal part of its copies on each of them.
    """
    hosts = service_hosts(layout, problem.cluster.node.gpus)
    ranks = layout.gpus / hosts / layout.rank_gpus if hosts else 0.0
    return ranks * problem.service.setup.host_cache_bytes


def exceeds_host_memory(problem: ServingProblem, layout: ServingLayout) -> bool:
    """Return True if copies of the KV cache do not fit in the memory of each host (V47)."""
    memory = problem.cluster.node.host_memory_bytes
    if not problem.service.setup.host_cache_bytes or memory is None:
        return False
    return _copies_bytes_per_host(problem, layout) > HOST_SHARE * memory


def _explain_exceeded_host_memory(problem: ServingProblem, layout: ServingLayout) -> Finding:
    node, size = problem.cluster.node, problem.service.setup.host_cache_bytes / 1e9
    memory, need = (
        (node.host_memory_bytes or 0) / 1e9,
        _copies_bytes_per_host(problem, layout) / 1e9,
    )
    fits = int(size * HOST_SHARE * memory / need)
    return Finding(
        f"copies of the KV cache need {need:,.0f} GB of memory per host, but a host has "
        f"{memory:,.0f} GB",
        label=f"{need / size:g} data-parallel ranks per host x {size:,.4g} GB = {need:,.0f} GB > "
        f"{HOST_SHARE} x {memory:,.0f} GB",
        help=f"at most {fits} GB per data-parallel rank fit; a larger layout.tp needs fewer ranks",
        fix=f"job.kv_offload.size: {fits}GB" if fits else "remove job.kv_offload",
        causes=(Cause("cluster.node", f"{node.name} has {memory:,.0f} GB of host memory"),),
    )


HOST_COPIES: tuple[ServingRule, ...] = (
    ServingRule(
        "V47",
        ("job.kv_offload.size", "cluster.node"),
        exceeds_host_memory,
        _explain_exceeded_host_memory,
    ),
)
"""Rule on the memory of a host."""


PLACEMENT: tuple[ServingRule, ...] = (
    ServingRule(
        "V05",
        ("layout.pp", "layout.tp", "cluster"),
        _splits_groups_over_hosts,
        _explain_split_groups,
    ),
    ServingRule(
        "T11",
        ("layout.replicas", "cluster"),
        _has_too_many_replicas,
        _explain_too_many_replicas,
    ),
)


def _memory_rules() -> tuple[ServingRule, ...]:
    """Return the two rules on device memory (V02, V01).

    Both rules use the result of ``stage_caches``. They share the last result, because computing it
    is expensive.
    """
    # A search checks both rules one after the other for each layout, and ``stage_caches`` is the
    # most expensive part of a check.
    last: list[tuple[ServingProblem, ServingLayout, tuple[StageCache, ...]]] = []

    def caches(problem: ServingProblem, layout: ServingLayout) -> tuple[StageCache, ...]:
        if not last or last[0][0] is not problem or last[0][1] is not layout:
            last[:] = [(problem, layout, stage_caches(problem, layout))]
        return last[0][2]

    def has_no_cache(problem: ServingProblem, layout: ServingLayout) -> bool:
        return any(stage.blocks < 1 for stage in caches(problem, layout))

    def exceeds_cache(problem: ServingProblem, layout: ServingLayout) -> bool:
        return any(stage.longest_bytes > stage.cache_bytes for stage in caches(problem, layout))

    longest_fields = ("job.max_model_len", "layout.tp")
    return (
        ServingRule("V02", ("layout.tp", "model"), has_no_cache, _explain_no_cache),
        ServingRule("V01", longest_fields, exceeds_cache, _explain_exceeded_cache),
    )


def engine_request_limits(problem: ServingProblem, layout: ServingLayout) -> EngineLimits:
    """Return the limits on requests that PARC passes to the engine at its start.

    If the spec does not set ``max_model_len``, PARC passes the context length of the model, or the
    length of the longest request that fits if that is shorter.
    """
    service, stages = problem.service, stage_caches(problem, layout)
    divided, blocks = service_cache_blocks(problem, layout), min(stage.blocks for stage in stages)
    setup = service.setup
    pinned = service.max_model_len
    fits = max(longest_request_that_fits(problem, layout, stages), service.longest_request_tokens)
    longest = fits if pinned is None else pinned
    seqs = setup.max_running or 1
    # If sequences store recurrent states in cache blocks, each needs one block. vLLM does not start
    # with more sequences than blocks (config/compilation.py, resolve_cudagraph_mode_and_sizes).
    return EngineLimits(
        max_model_len=longest,
        max_num_seqs=max(min(seqs, blocks), 1) if divided.blocks_for_states else seqs,
        max_num_batched_tokens=setup.max_batched_tokens or 1,
        gpu_memory_utilization=setup.memory_share or 0.0,
        block_tokens=divided.tokens,
        blocks=blocks,
        shards=layout.dcp,
        longest_blocks=divided.blocks_of_request(longest, layout.dcp)
        if divided.blocks_for_states
        else 0,
    )
