"""What every framework asks of a layout: whole shards, chunks that a schedule runs, even hosts."""

from __future__ import annotations

from parc.backends.base import Framework
from parc.backends.shared.strategies import strategy_rules
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem, Schedule
from parc.compiler.ir.rule import WORLD_FIELDS, Rule
from parc.compiler.topology.node_groups import ranks_per_node

MOST_CHUNKS = 1_000
"""No model has as many layers a pipeline rank."""


def _tensor_cut(problem: Problem, layout: Layout) -> bool:
    domain = _domain_gpus(problem)
    return domain % layout.tp != 0 and layout.tp % domain != 0


def _tensor_finding(problem: Problem, layout: Layout) -> Finding:
    domain = _domain_gpus(problem)
    legal = [n for n in range(1, domain + 1) if domain % n == 0]
    small, large = min(layout.tp, domain), max(layout.tp, domain)
    return Finding(
        message=f"tensor-parallel groups of {layout.tp} straddle NVLink domains of {domain} GPUs",
        label=f"{large} % {small} = {large % small}, must be 0",
        help=f"legal tp within one domain: {', '.join(map(str, legal))}",
        fix=f"layout.tp: {max(n for n in legal if n <= layout.tp)}",
        causes=(Cause("cluster.node", f"{domain} GPUs share one NVLink domain"),),
    )


def _uneven(problem: Problem, layout: Layout) -> bool:
    cluster = problem.cluster
    per_node = ranks_per_node(cluster.node.gpus, layout.world)
    return layout.world // per_node > cluster.nodes


def _uneven_finding(problem: Problem, layout: Layout) -> Finding:
    cluster, world = problem.cluster, layout.world
    gpus = cluster.node.gpus
    need = world // ranks_per_node(gpus, world)
    if world > cluster.gpus:
        label = f"{world} ranks > {cluster.nodes} hosts x {gpus} GPUs = {cluster.gpus}"
    else:
        label = f"{world} ranks, equally many a host, need {need} hosts of {cluster.nodes}"
    product = f"tp {layout.tp} x cp {layout.cp} x pp {layout.pp} x dp {layout.dp}"
    model = layout.tp * layout.cp * layout.pp
    return Finding(
        message=f"{world} ranks cannot be spread evenly over {cluster.nodes} hosts of {gpus} GPUs",
        label=label,
        help=f"{product} = {world} must be a multiple of {gpus}, or divide over fewer GPUs a host",
        fix=_fill(cluster.gpus, model),
        causes=(Cause("cluster", f"{cluster.gpus} usable GPUs"),),
    )


def _fill(gpus: int, model_ranks: int) -> str:
    """The dp that uses every GPU; where there is none, another pp must be found."""
    if gpus % model_ranks == 0:
        return f"layout.dp: {gpus // model_ranks}"
    return "layout.pp: auto"


def _domain_gpus(problem: Problem) -> int:
    node = problem.cluster.node
    return max(node.nvlink_domain, node.gpus)


def _shard_broken(problem: Problem, layout: Layout) -> bool:
    return layout.world != layout.tp * layout.cp * layout.pp * layout.dp_shard * layout.dp_replicate


def _shard_finding(problem: Problem, layout: Layout) -> Finding:
    shard = layout.dp_shard
    dp = layout.world // (layout.tp * layout.cp * layout.pp)
    legal = [n for n in range(1, dp + 1) if dp % n == 0]
    near = min(legal, key=lambda n: (abs(n - shard), n))
    return Finding(
        message=f"dp={dp} replicas cannot be cut into shards of {shard}",
        label=f"{dp} % {shard} = {dp % shard}, must be 0",
        help=f"legal dp_shard: {', '.join(map(str, legal[:24]))}",
        fix=f"layout.dp_shard: {near}",
        causes=(Cause("layout.dp", f"dp {dp}"),),
    )


CHUNKS: dict[Schedule, tuple[int, int]] = {
    "gpipe": (1, 1),
    "1f1b": (1, 1),
    "interleaved": (2, MOST_CHUNKS),
    "zb-h1": (1, MOST_CHUNKS),
    "zb-v": (2, 2),
    "dualpipe-v": (2, 2),
}
"""Fewest and most chunks of a pipeline rank, by schedule."""


def _chunks_broken(problem: Problem, layout: Layout) -> bool:
    low, high = CHUNKS[layout.schedule]
    return layout.pp > 1 and not low <= layout.vpp <= high


def _chunks_finding(problem: Problem, layout: Layout) -> Finding:
    low, high = CHUNKS[layout.schedule]
    legal = f"{low}" if low == high else f"{low} or more"
    return Finding(
        message=f"schedule {layout.schedule} does not run {layout.vpp} chunks a pipeline rank",
        label=f"vpp={layout.vpp}, must be {legal}",
        help=f"legal vpp for {layout.schedule}: {legal}",
        fix=f"layout.vpp: {low}",
        causes=(Cause("layout.schedule", f"the schedule is {layout.schedule}"),),
    )


MESH_RULES: tuple[Rule, ...] = (
    Rule("D22", ("layout.dp_shard", "layout.dp"), _shard_broken, _shard_finding, WORLD_FIELDS),
    Rule(
        "P20",
        ("layout.vpp", "layout.schedule"),
        _chunks_broken,
        _chunks_finding,
        ("pp", "vpp", "schedule"),
    ),
)
"""Whatever the framework: shards tile the replicas, and schedules have their number of chunks."""

PLACEMENT_RULES: tuple[Rule, ...] = (
    Rule("T02", ("layout.tp", "cluster.node"), _tensor_cut, _tensor_finding, ("tp",)),
    Rule("T11", ("layout.dp", "cluster"), _uneven, _uneven_finding, WORLD_FIELDS),
)
"""For every framework: the search drops what breaks them."""


def all_rules(problem: Problem, framework: Framework) -> tuple[Rule, ...]:
    """What the framework cannot say, what it refuses, then what no host order can place."""
    unsaid = strategy_rules(framework.name, framework.strategies)
    return (*unsaid, *MESH_RULES, *framework.rules(problem), *PLACEMENT_RULES)
