"""Warnings and advice about a finished serving plan: tensor groups, idle GPUs, and latency."""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.sink import PlanCheck
from parc.compiler.evaluate.simulated_limits import cannot_sustain
from parc.compiler.ir import ServingPlan
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.serving_plan import ServingCandidate
from parc.compiler.search.explain_services import format_limit, format_serving_sizes
from parc.compiler.topology.hostlist import compress_hosts

LONGEST_FIRST_TOKEN_SECONDS = 10.0
"""Time to the first token above which PARC warns. A person who waits longer turns to something else
(J. Nielsen, Usability Engineering, 1993, chapter 5)."""
LOOSEST_SECONDS: dict[str, float] = {"ttft": 100.0, "tpot": 1.0}
"""Latency limit in seconds from which milliseconds were probably meant (G13). At one token per
second, an answer is written at a fifth of the speed of reading (Brysbaert 2019: 238 words per
minute)."""
NOTABLE_LOSS = 0.03
"""Smallest relative loss of performance that is reported."""


def check_serving_plan(plan: ServingPlan, sink: Sink) -> None:
    """Report problems of a serving plan.

    These are tensor-parallel groups that do not fit in an NVLink domain (T01), tensor parallelism
    that the plan avoids (V30), idle GPUs (T15), a long time to the first token (G06), limits
    that cost much (G07), a goal without a price (G10), and limits that may be milliseconds (G13).
    """
    for check in SERVING_PLAN_CHECKS:
        check.run(plan, sink)


def _check_first_token(plan: ServingPlan, sink: Sink) -> None:
    """Report a request rate that the service cannot sustain, or a long wait without a limit (G06).

    A wait is reported only if the spec sets a load, but no limit on the time to the first token.
    """
    estimate, goals = plan.estimate, plan.problem.goals
    rate, simulated = plan.problem.service.traffic.request_rate, estimate.simulated
    if rate and simulated and cannot_sustain(plan.problem, simulated):
        finding = Finding(
            f"the service serves {simulated.requests_per_second:.3g} of {rate:g} requests per "
            "second in the simulation, so its queue keeps growing",
            label=f"in {simulated.requests:,} requests, the time to the first token reaches "
            f"{format_limit(simulated.ttft_seconds.p99)} (p99)",
            help="use more GPUs or a lower request rate",
        )
        paths = ("job.traffic.request_rate", "job.traffic")
        sink.report("G06", finding, at=sink.positions.first_path_in_spec(paths))
        return
    if not plan.problem.service.traffic.is_load_given or goals.ttft_seconds is not None:
        return
    if estimate.ttft_seconds <= LONGEST_FIRST_TOKEN_SECONDS:
        return
    waiting = f"; {estimate.waiting:,.0f} requests wait for space in the KV cache"
    finding = Finding(
        f"requests wait {estimate.ttft_seconds:.3g} s for their first token on average",
        label=f"goals.ttft is not set{waiting if estimate.waiting >= 1 else ''}",
        help="set goals.ttft to the longest time that users accept, for example 2s; if no layout "
        "meets it, the load needs more GPUs",
    )
    sink.report("G06", finding, at=sink.positions.first_path_in_spec(("goals", "job.traffic")))


def _advise_higher_limit(plan: ServingPlan, sink: Sink) -> None:
    """Report latency limits that require many more GPUs or reduce the throughput a lot (G07)."""
    for one in plan.search.near_misses:
        found, limit = one.candidate, one.limit
        written = sink.positions.is_path_in_spec(f"goals.{limit.latency}.{limit.statistic}")
        key = f".{limit.statistic}" if written else ""
        effect, saved = f"would allow {one.gain:.2g} times the throughput", 1 - 1 / one.gain
        if plan.problem.minimizes_gpus:
            effect = f"would save {100 * saved:.0f} % of the GPUs"
        elif plan.problem.minimizes_latency:
            effect = f"would make requests {100 * saved:.0f} % shorter"
        finding = Finding(
            f"raising the limit on {limit.text} from {format_limit(limit.seconds)} to "
            f"{format_limit(one.higher_seconds)} {effect}",
            label=f"best plan with the higher limit: {_format_candidate(found)} on "
            f"{found.layout.gpus:,} GPUs",
            help="no change is needed if the limit is strict",
            fix=f"goals.{limit.latency}{key}: {format_limit(one.higher_seconds).replace(' ', '')}",
        )
        sink.report("G07", finding, at=f"goals.{limit.latency}{key}")


def _check_unit_of_limits(plan: ServingPlan, sink: Sink) -> None:
    """Report latency limits that are so long that milliseconds were probably meant (G13)."""
    predicted = {"ttft": plan.estimate.ttft_seconds, "tpot": plan.estimate.tpot_seconds}
    for limit in plan.problem.goals.latency_limits:
        usual = predicted.get(limit.latency)
        if usual is None or limit.seconds < max(LOOSEST_SECONDS[limit.latency], 10 * usual):
            continue
        written = sink.positions.is_path_in_spec(f"goals.{limit.latency}.{limit.statistic}")
        key = f".{limit.statistic}" if written else ""
        finding = Finding(
            f"the limit on {limit.text} is {format_limit(limit.seconds)}, "
            f"{limit.seconds / usual:,.0f} times the predicted mean",
            label=f"the plan has {format_limit(usual)} on average",
            help="a number without a unit is in seconds; for milliseconds write "
            f"{limit.seconds:g}ms",
        )
        sink.report("G13", finding, at=f"goals.{limit.latency}{key}")


def _check_price(plan: ServingPlan, sink: Sink) -> None:
    """Report that the goal lowest-cost has no price, so that no cost can be printed (G10)."""
    if plan.problem.goals.maximize != "lowest-cost" or plan.cost_per_hour is not None:
        return
    finding = Finding(
        "goals.maximize is lowest-cost, but the cluster has no price",
        label="on one cluster all GPUs cost the same, so the plan occupies the fewest GPU hours",
        help="set cluster.price_per_gpu_hour to the price of one GPU for one hour, to see the cost "
        "per hour and per million tokens",
    )
    sink.report("G10", finding, at="goals.maximize")


def _check_tensor_groups(plan: ServingPlan, sink: Sink) -> None:
    """Report tensor-parallel groups that do not fit in an NVLink domain (T01).

    Without NVLink, groups that do not fit in a host are reported.
    """
    node, tp = plan.problem.cluster.node, plan.layout.tp
    domain = max(node.nvlink_domain, node.gpus)
    if tp <= domain:
        return
    valid = ", ".join(map(str, divisors(domain)))
    finding = Finding(
        f"tensor-parallel groups of {tp} GPUs are larger than an NVLink domain, so the "
        "all-reduces of each layer cross the network",
        label=f"tp = {tp}, but a domain has {domain} GPUs",
        help=f"values of tp that fit into a domain: {valid}; increase pp by the factor by which "
        "you decrease tp",
        fix=f"layout.tp: {divisors(tp, domain)[-1]}",
        causes=(Cause("cluster.node", f"{domain} GPUs share one NVLink domain"),),
    )
    sink.report("T01", finding, at="layout.tp")


def _advise_against_tensor_parallelism(plan: ServingPlan, sink: Sink) -> None:
    """Report that the plan avoids tensor parallelism because PCIe connects the GPUs (V30)."""
    node = plan.problem.cluster.node
    if node.nvlink_domain > 1 or node.gpus == 1 or plan.layout.tp > 1:
        return
    slower = [
        one for one in plan.search.rejected if _relative_performance_loss(plan, one) > NOTABLE_LOSS
    ]
    if not slower:
        return
    best = min(slower, key=lambda one: _relative_performance_loss(plan, one))
    # A layer has one all-reduce per part, attention and MLP.
    reductions = sum(kind.sub_layers for kind in plan.problem.model.layer_kinds)
    finding = Finding(
        f"the plan avoids tensor parallelism over PCIe: tp {best.layout.tp} would reduce "
        f"the performance by {100 * _relative_performance_loss(plan, best):.0f} %",
        label=f"{_format_candidate(best)} instead of {_format_candidate(plan.search.ranked[0])}",
        help=f"each attention and each MLP would need an all-reduce over PCIe "
        f"({node.link_gb_per_s:g} GB/s): {reductions} all-reduces per token",
        causes=(Cause("cluster.node", f"{node.name} connects its GPUs only by PCIe"),),
    )
    sink.report("V30", finding, at="cluster.node")


def _relative_performance_loss(plan: ServingPlan, other: ServingCandidate) -> float:
    """Return how much worse ``other`` performs than the plan, as a fraction.

    Performance is the throughput. If the goal is latency or the traffic sets a request rate,
    performance is the inverse of the request latency instead.
    """
    chosen, traffic = plan.search.ranked[0], plan.problem.service.traffic
    by_latency = plan.problem.goals.maximize == "latency" or traffic.request_rate is not None
    if not by_latency:
        return 1 - other.tokens_per_second / chosen.tokens_per_second
    # The first output token is part of the time to first token.
    later = max(traffic.output_tokens - 1, 0.0)
    mine = chosen.ttft_seconds + later * chosen.tpot_seconds
    return 1 - mine / (other.ttft_seconds + later * other.tpot_seconds)


def _format_candidate(candidate: ServingCandidate) -> str:
    """Return the throughput, time per token and parallel sizes of a candidate as text."""
    layout, milliseconds = candidate.layout, candidate.tpot_seconds * 1e3
    sizes = format_serving_sizes(layout)
    sizes = sizes if layout.tp > 1 or sizes == "tp 1" else f"tp 1, {sizes}"
    replicas = f"{layout.replicas} replica" + "s" * (layout.replicas > 1)
    return (
        f"{candidate.tokens_per_second:,.0f} tokens/s, {milliseconds:.1f} ms per token "
        f"({sizes}, {replicas})"
    )


def _check_idle_gpus(plan: ServingPlan, sink: Sink) -> None:
    """Report GPUs that get no rank (T15), unless the goal is fewest-gpus."""
    placement, cluster, layout = plan.placement, plan.problem.cluster, plan.layout
    idle = cluster.gpus - layout.gpus
    if idle <= 0 or plan.problem.minimizes_gpus:
        return
    used = {host.name for host in placement.hosts}
    spare = [host.name for host in cluster.hosts if host.name not in used]
    parts = [f"idle hosts: {compress_hosts(spare)[:80]}"] if spare else []
    if placement.ranks_per_node < cluster.node.gpus:
        free = cluster.node.gpus - placement.ranks_per_node
        parts.append(f"{free} of {cluster.node.gpus} GPUs idle on each host with ranks")
    finding = Finding(
        f"{idle} of {cluster.gpus} GPUs get no rank",
        label=f"{layout.replicas} engines of {layout.engine_gpus} GPUs; {'; '.join(parts)}",
        help="list hosts that are meant to stay idle under cluster.spare",
        causes=(Cause("layout.replicas", f"replicas = {layout.replicas}"),),
    )
    sink.report("T15", finding, at="cluster")


SERVING_PLAN_CHECKS: tuple[PlanCheck[ServingPlan], ...] = (
    PlanCheck(("T01",), _check_tensor_groups),
    PlanCheck(("G06",), _check_first_token),
    PlanCheck(("G07",), _advise_higher_limit),
    PlanCheck(("G10",), _check_price),
    PlanCheck(("G13",), _check_unit_of_limits),
    PlanCheck(("V30",), _advise_against_tensor_parallelism),
    PlanCheck(("T15",), _check_idle_gpus),
)
"""Checks that ``check_serving_plan`` and ``parc lint`` run."""
