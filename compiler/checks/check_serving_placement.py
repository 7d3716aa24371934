"""Judge a finished serving plan: slow links under tensor groups, GPUs that stay idle."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Model, ServingPlan
from parc.compiler.ir.serving_plan import ServingCandidate
from parc.compiler.topology.hostlist import compress

CUSTOM_ALL_REDUCE = 2
"""PCIe GPUs that vLLM's own all-reduce takes at most (distributed/custom_all_reduce.py)."""
FEW = 0.03
"""Differences up to this are not worth a word."""


def check_serving_placement(plan: ServingPlan, sink: Sink) -> None:
    """Report T01 and T10 on tensor groups, V30 on those that were avoided, T15 on idle GPUs."""
    _check_domain(plan, sink)
    _check_bridge(plan, sink)
    _check_idle(plan, sink)


def _check_domain(plan: ServingPlan, sink: Sink) -> None:
    """T01: a tensor group that leaves its host and its NVLink domain."""
    node, tp = plan.problem.cluster.node, plan.layout.tp
    domain = max(node.nvlink_domain, node.gpus)
    if tp <= domain:
        return
    legal = ", ".join(str(n) for n in range(1, domain + 1) if domain % n == 0)
    finding = Finding(
        f"every tensor-parallel group of {tp} leaves its NVLink domain: all-reduces of each layer "
        "cross the network",
        label=f"tp = {tp}, a domain has {domain} GPUs",
        help=f"tp that stays inside: {legal}; the other factor goes to pp",
        fix=f"layout.tp: {max(n for n in range(1, domain + 1) if tp % n == 0)}",
        causes=(Cause("cluster.node", f"{domain} GPUs share one NVLink domain"),),
    )
    sink.report("T01", finding, at="layout.tp")


def _check_bridge(plan: ServingPlan, sink: Sink) -> None:
    """T10 where tensor groups lie on a PCIe bus; V30 where the search avoided it, and the gain."""
    node, tp = plan.problem.cluster.node, plan.layout.tp
    if node.nvlink_domain > 1 or node.gpus == 1:
        return
    cause = Cause("cluster.node", f"{node.name} joins its GPUs over PCIe alone")
    if tp > CUSTOM_ALL_REDUCE:
        finding = Finding(
            "Custom allreduce is disabled because it's not supported on more than two PCIe-only "
            "GPUs",
            label=f"tp = {tp}: {_reduced(plan.problem.model)} all-reduces a token over "
            f"{node.link_gb_per_s:g} GB/s",
            help="pp sends one small message a stage, replicas send none",
            causes=(cause,),
        )
        sink.report("T10", finding, at="layout.tp")
    elif tp == 1 and plan.search.rejected:
        _report_avoided(plan, cause, sink)


def _reduced(model: Model) -> int:
    """All-reduces of a token: one after every mixer, one after every MLP."""
    return sum(kind.parts for kind in model.layer_kinds)


def _report_avoided(plan: ServingPlan, cause: Cause, sink: Sink) -> None:
    """V30: what the best layouts with tensor parallelism would have given."""
    lost = [one for one in plan.search.rejected if _loss(plan, one) > FEW]
    if not lost:
        return
    best = min(lost, key=lambda one: _loss(plan, one))
    finding = Finding(
        f"no tensor parallelism over PCIe: tp {best.layout.tp} would lose "
        f"{_loss(plan, best):.0%} of what the plan gives",
        label=f"{_figures(best)} instead of {_figures(plan.search.ranked[0])}",
        help=f"an all-reduce over PCIe ({plan.problem.cluster.node.link_gb_per_s:g} GB/s) stands "
        f"after every attention and every MLP: {_reduced(plan.problem.model)} a token",
        causes=(cause,),
    )
    sink.report("V30", finding, at="cluster.node")


def _loss(plan: ServingPlan, other: ServingCandidate) -> float:
    """Share of the plan's merit that ``other`` lacks: of speed, or of latency."""
    chosen, traffic = plan.search.ranked[0], plan.problem.service.traffic
    by_latency = plan.problem.goals.maximize == "latency" or traffic.request_rate is not None
    if not by_latency:
        return 1 - other.tokens_per_second / chosen.tokens_per_second
    later = max(traffic.output_tokens - 1, 0.0)
    mine = chosen.ttft_seconds + later * chosen.tpot_seconds
    return 1 - mine / (other.ttft_seconds + later * other.tpot_seconds)


def _figures(one: ServingCandidate) -> str:
    layout = one.layout
    degrees = f"tp {layout.tp} pp {layout.pp} x {layout.replicas}"
    return (
        f"{one.tokens_per_second:,.0f} tokens/s, {one.tpot_seconds * 1e3:.1f} ms a token "
        f"({degrees})"
    )


def _check_idle(plan: ServingPlan, sink: Sink) -> None:
    """T15: GPUs of the cluster that get no rank, where nobody asked for few."""
    placement, cluster, layout = plan.placement, plan.problem.cluster, plan.layout
    idle = cluster.gpus - layout.gpus
    if idle <= 0 or plan.problem.goals.maximize == "fewest-gpus":
        return
    used = {host.name for host in placement.hosts}
    spare = [host.name for host in cluster.hosts if host.name not in used]
    parts = [f"idle hosts: {compress(spare)[:80]}"] if spare else []
    if placement.ranks_per_node < cluster.node.gpus:
        free = cluster.node.gpus - placement.ranks_per_node
        parts.append(f"{free} of {cluster.node.gpus} GPUs idle on each host with ranks")
    finding = Finding(
        f"{idle} of {cluster.gpus} GPUs get no rank",
        label=f"{layout.replicas} engines of {layout.engine_gpus}; {'; '.join(parts)}",
        help="list hosts that are meant to stay idle under cluster.spare",
        causes=(Cause("layout.replicas", f"replicas = {layout.replicas}"),),
    )
    sink.report("T15", finding, at="cluster")
