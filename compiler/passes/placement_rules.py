"""What the hardware asks of a layout before it can be placed at all; keyed like any rule."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.ir import Layout, Problem
from parc.compiler.ir.rule import WORLD, Rule
from parc.compiler.topology.node_groups import ranks_per_node


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


PLACEMENT_RULES: tuple[Rule, ...] = (
    Rule("T02", ("layout.tp", "cluster.node"), _tensor_cut, _tensor_finding, ("tp",)),
    Rule("T11", ("layout.dp", "cluster"), _uneven, _uneven_finding, WORLD),
)
"""For every framework: the search drops what breaks them."""
