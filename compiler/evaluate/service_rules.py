"""What hosts and device memory ask of a serving layout; keyed like any rule of an engine."""

from __future__ import annotations

from parc.backends.base import Engine
from parc.compiler.cost.serving.stages import service_blocks, stage_caches
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import ServingLayout, ServingProblem
from parc.compiler.ir.serving_plan import StageCache
from parc.compiler.ir.serving_rule import ServingRule
from parc.compiler.topology.engine_hosts import engine_hosts, replica_counts, service_hosts

GIB = 2**30


def service_rules(problem: ServingProblem, engine: Engine) -> tuple[ServingRule, ...]:
    """What the engine refuses or accepts in silence, then what no host can hold."""
    return (*engine.rules(problem), *PLACEMENT, *MEMORY)


def _straddles(problem: ServingProblem, layout: ServingLayout) -> bool:
    hosts = engine_hosts(layout, problem.cluster.node.gpus)
    return hosts is None or hosts > problem.cluster.nodes


def _explain_straddles(problem: ServingProblem, layout: ServingLayout) -> Finding:
    cluster, gpus = problem.cluster, layout.engine_gpus
    each, host = engine_hosts(layout, cluster.node.gpus), cluster.node.gpus
    product = f"tp {layout.tp} x pp {layout.pp}"
    product += f" x pcp {layout.pcp}" if layout.pcp > 1 else ""
    product += f" x dp {layout.dp}" if layout.dp > 1 else ""
    fewest = -(-gpus // host)
    if gpus > cluster.gpus:
        return Finding(
            f"World size ({gpus}) is larger than the number of available GPUs ({cluster.gpus})",
            label=f"{product} = {gpus} > {cluster.nodes} hosts x {host} = {cluster.gpus}",
            help="less of tp, pp or dp, or more hosts",
            causes=(Cause("cluster", f"{cluster.gpus} GPUs"),),
        )
    return Finding(
        f"an engine of {gpus} GPUs does not fill hosts of {host} evenly: tensor groups or "
        "data-parallel ranks would be cut, and vLLM does not say so",
        label=f"{product} = {gpus} on {fewest} hosts; whole groups on every host need "
        + (f"{each} hosts, there are {cluster.nodes}" if each else "another number of GPUs"),
        help=f"`--nnodes {fewest}` must evenly divide the total world size ({gpus}), with whole "
        "groups on every host",
        fix="layout.pp: auto",
        causes=(Cause("cluster.node", f"{host} GPUs a host"),),
    )


def _too_many(problem: ServingProblem, layout: ServingLayout) -> bool:
    if layout.replicas == 1 or _straddles(problem, layout):
        return False
    hosts = service_hosts(layout, problem.cluster.node.gpus)
    return hosts is None or hosts > problem.cluster.nodes


def _explain_too_many(problem: ServingProblem, layout: ServingLayout) -> Finding:
    cluster = problem.cluster
    counts = replica_counts(layout, cluster.node.gpus, cluster.nodes)
    below = [count for count in counts if count <= layout.replicas]
    need = service_hosts(layout, cluster.node.gpus)
    return Finding(
        f"{layout.replicas} engines of {layout.engine_gpus} GPUs do not lie evenly on "
        f"{cluster.nodes} hosts of {cluster.node.gpus}",
        label=f"they need {need} hosts with equally many engines each",
        help=f"legal replicas: {', '.join(map(str, counts[-6:])) or 'none'}",
        fix=f"layout.replicas: {below[-1]}" if below else "",
        causes=(Cause("cluster", f"{cluster.gpus} GPUs"),),
    )


def _no_room(problem: ServingProblem, layout: ServingLayout) -> bool:
    return any(stage.blocks < 1 for stage in stage_caches(problem, layout))


def _explain_no_room(problem: ServingProblem, layout: ServingLayout) -> Finding:
    stage = min(stage_caches(problem, layout), key=lambda one: one.cache_bytes - one.weights_bytes)
    gpu, share = problem.cluster.gpu, 1 - problem.goals.memory_headroom
    needed = stage.weights_bytes + stage.overhead_bytes
    return Finding(
        "No available memory for the cache blocks: weights do not fit beside what a step needs",
        label=f"{_gib(stage.weights_bytes)} weights + {_gib(stage.overhead_bytes)} activations "
        f"and graphs = {_gib(needed)} GiB of {_gib(gpu.memory_bytes * share)} "
        f"({_gib(gpu.memory_bytes)} x {share:.2f})",
        help="more of tp, pp or ep, weights of fewer bits, or a smaller max_num_batched_tokens",
        causes=(
            Cause("model", f"{problem.model.name}, on {layout.engine_gpus} GPUs"),
            Cause("cluster.gpu", f"{gpu.name} has {_gib(gpu.memory_bytes)} GiB"),
        ),
    )


def _too_short(problem: ServingProblem, layout: ServingLayout) -> bool:
    return any(stage.longest_bytes > stage.cache_bytes for stage in stage_caches(problem, layout))


def _explain_too_short(problem: ServingProblem, layout: ServingLayout) -> Finding:
    stages, service = stage_caches(problem, layout), problem.service
    stage = min(stages, key=lambda one: one.cache_bytes / one.longest_bytes)
    fits = longest_that_fits(problem, layout, stages)
    blocks = service_blocks(problem, layout)
    per_token = blocks.attention * stage.block_bytes / blocks.tokens
    states = f" + {_gib(blocks.states * stage.block_bytes)} GiB of states" if blocks.states else ""
    return Finding(
        f"To serve at least one request with the model's max seq len ({service.longest}), "
        f"({stage.longest_bytes / GIB:.2f} GiB KV cache is needed, which is larger than the "
        f"available KV cache memory ({stage.cache_bytes / GIB:.2f} GiB)",
        label=f"{service.longest} tokens x {per_token:,.0f} B{states} on a rank of stage "
        f"{stage.stage}",
        help=(f"the estimated maximum model length is {fits}; or " if fits else "")
        + "more tp or pp, or kv_precision fp8",
        fix=f"job.max_model_len: {fits}" if fits else "",
        causes=(Cause("model", f"weights take {_gib(stage.weights_bytes)} GiB of a GPU"),),
    )


def longest_that_fits(
    problem: ServingProblem, layout: ServingLayout, stages: tuple[StageCache, ...]
) -> int:
    """Tokens of the longest request that every stage can hold, at most the model's context.

    Exact where all layers see all tokens; layers with a window hold less, so more would fit.
    """
    context = problem.service.context
    blocks = min(stage.blocks for stage in stages)
    tokens = service_blocks(problem, layout).longest(blocks, layout.dcp)
    return context if tokens is None else min(tokens, context)


def _gib(count_bytes: float) -> str:
    return f"{count_bytes / GIB:.1f}"


PLACEMENT: tuple[ServingRule, ...] = (
    ServingRule("V05", ("layout.pp", "layout.tp", "cluster"), _straddles, _explain_straddles),
    ServingRule("T11", ("layout.replicas", "cluster"), _too_many, _explain_too_many),
)
MEMORY: tuple[ServingRule, ...] = (
    ServingRule("V02", ("layout.tp", "model"), _no_room, _explain_no_room),
    ServingRule("V01", ("job.max_model_len", "layout.tp"), _too_short, _explain_too_short),
)
