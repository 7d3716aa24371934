"""Warnings about a finished placement: groups that span NVLink domains, and idle GPUs."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from parc.backends.registry import framework_of_problem
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.diagnostics.sink import PlanCheck
from parc.compiler.evaluate.layout_rules import axes_faster_than_tp, explain_faster_axes
from parc.compiler.ir import Mesh, Placement, Plan
from parc.compiler.ir.divisors import divisors
from parc.compiler.search.search_idle_hosts import (
    MIN_GAIN,
    may_leave_hosts_idle,
    search_other_problem,
)
from parc.compiler.topology.hostlist import compress_hosts
from parc.compiler.topology.node_groups import node_groups


def check_placement(plan: Plan, sink: Sink) -> None:
    """Report problems of a placement.

    These are tensor-parallel groups (T01, T02) and expert groups (M04) that span NVLink domains,
    and idle GPUs (G04, T15).
    """
    for check in PLACEMENT_CHECKS:
        check.run(plan, sink)


def _check_tensor_groups(plan: Plan, sink: Sink) -> None:
    """Report tensor-parallel groups that span NVLink domains.

    The diagnostic code is T01 if a group is larger than a domain, and otherwise T02.
    """
    tp = plan.layout.tp
    cut, total, example = _count_split_groups(plan.placement, plan.placement.dense, ("tp",))
    if not cut:
        return
    domain = _gpus_per_domain(plan)
    # If a host is a domain, groups must also fit into the ranks of the host.
    hosts_are_domains = domain <= plan.problem.cluster.node.gpus
    within = plan.placement.ranks_per_node if hosts_are_domains else domain
    cause = Cause("cluster.node", f"{domain} GPUs share one NVLink domain")
    if faster := axes_faster_than_tp(plan.placement.dense):
        text = f"{cut} of {total} groups of {tp}"
        finding = explain_faster_axes(plan.layout, faster, within, cut=text)
        sink.report("T02" if tp <= domain else "T01", finding, at="layout.tp")
        return
    # Only divisors of the domain fill it without a group that reaches into the next domain.
    valid = ", ".join(map(str, divisors(domain)))
    finding = Finding(
        message=f"{cut} of {total} tensor-parallel groups of {tp} ranks span NVLink domains",
        label=f"tp = {tp}, {domain} GPUs per domain; for example, a group spans hosts "
        f"{' and '.join(example)}",
        help=f"values of tp that fit into a domain: {valid}",
        fix=_divisor_fix("layout.tp", tp, gcd(domain, within)),
        causes=(cause,),
    )
    sink.report("T02" if tp <= domain else "T01", finding, at="layout.tp")


def _check_expert_groups(plan: Plan, sink: Sink) -> None:
    """Report expert groups that span NVLink domains, although each group fits in a domain (M04).

    Clusters whose NVLink domains contain only one host are not checked.
    """
    layout, domain = plan.layout, _gpus_per_domain(plan)
    block = layout.ep * layout.etp
    if layout.ep == 1 or block > domain or domain <= plan.problem.cluster.node.gpus:
        return
    cut, total, example = _count_split_groups(plan.placement, plan.placement.expert, ("ep", "tp"))
    if not cut:
        return
    finding = Finding(
        message=f"{cut} of {total} expert-parallel groups of {block} ranks span NVLink domains",
        label=f"ep x etp = {block} <= {domain} GPUs per domain, but a group spans hosts "
        f"{' and '.join(example)}",
        help=f"each group needs {block // plan.placement.ranks_per_node} hosts of the same domain",
        fix=_divisor_fix("layout.ep", layout.ep, domain // layout.etp),
        causes=(Cause("cluster.node", f"{domain} GPUs share one NVLink domain"),),
    )
    sink.report("M04", finding, at="layout.ep")


def _divisor_fix(path: str, size: int, capacity: int) -> str:
    """Return a fix that sets the parallel size at ``path`` to a size that fits in a domain.

    The new size is the greatest common divisor of ``size`` and ``capacity``. The fix is empty if
    this is ``size`` itself, because then only other settings can help.
    """
    divisor = gcd(size, capacity)
    return "" if divisor == size else f"{path}: {divisor}"


def _check_idle_gpus(plan: Plan, sink: Sink) -> None:
    """Report GPUs of the cluster that get no rank: G04 if the search decided this, else T15."""
    placement, cluster = plan.placement, plan.problem.cluster
    layout = plan.layout
    idle = cluster.gpus - layout.world
    if idle <= 0:
        return
    # Layouts that parc lint reads from a launch file have no search.
    if plan.search.ranked:
        if may_leave_hosts_idle(plan.problem):
            sink.report("G04", _explain_idle_hosts(plan), at="cluster")
            return
        if plan.problem.goals.maximize == "fewest-gpus" and plan.problem.pins.dp is None:
            return
    used = {host.name for host in placement.hosts}
    spare = [host.name for host in cluster.hosts if host.name not in used]
    per_host = cluster.node.gpus - placement.ranks_per_node
    parts = []
    if spare:
        parts.append(f"idle hosts: {_shorten_host_list(compress_hosts(spare))}")
    if per_host:
        parts.append(f"{per_host} of {cluster.node.gpus} GPUs idle on each host with ranks")
    product = f"tp {layout.tp} x cp {layout.cp} x pp {layout.pp} x dp {layout.dp}"
    finding = Finding(
        message=f"{idle} of {cluster.gpus} GPUs get no rank",
        label=f"{product} = {layout.world} ranks for {cluster.gpus} GPUs; {'; '.join(parts)}",
        help="list hosts that are meant to stay idle under cluster.spare",
        causes=(Cause("layout.dp", f"dp = {layout.dp}"),),
    )
    sink.report("T15", finding, at="cluster")


def _explain_idle_hosts(plan: Plan) -> Finding:
    """Return why the search left hosts idle, with the step times on fewer and on all hosts."""
    placement, cluster, search = plan.placement, plan.problem.cluster, plan.search
    used = {host.name for host in placement.hosts}
    idle = [host.name for host in cluster.hosts if host.name not in used]
    chosen = search.ranked[0].step_seconds
    others = [one for one in search.ranked if one.layout.world == cluster.gpus]
    if others:
        layout, seconds = others[0].layout, others[0].step_seconds
        sizes = f"tp {layout.tp}, cp {layout.cp}, pp {layout.pp}, dp {layout.dp}"
        message = (
            f"a step is {100 * (1 - chosen / seconds):.0f} % shorter on {len(used)} of "
            f"{cluster.nodes} hosts than on all hosts"
        )
        label = f"{chosen:.3g} s instead of {seconds:.3g} s with {sizes} on {cluster.gpus} GPUs"
    else:
        on = "1 host is" if len(used) == 1 else f"{len(used)} hosts are"
        message = f"no layout on all {cluster.nodes} hosts is valid and fits into memory; {on} used"
        label = f"{plan.layout.world} of {cluster.gpus} GPUs get a rank"
    # Without a valid layout on all hosts, forbidding idle hosts would be an error.
    forbid = "; goals.idle_hosts: forbid plans all hosts" if others else ""
    return Finding(
        message=message,
        label=f"{label}; idle hosts: {_shorten_host_list(compress_hosts(idle))}",
        help=f"{_suggest_batches(plan)}list these hosts under cluster.spare{forbid}",
        causes=(Cause("job.global_batch", f"{plan.problem.job.global_batch} sequences per step"),),
    )


def _suggest_batches(plan: Plan) -> str:
    """Return global batches near that of the spec with which PARC would use all hosts.

    They suit the parallel sizes of the plan. If tp x cp x pp of the layout does not divide the
    number of GPUs, the batches are those of a layout with cp 1. The text is empty if there are
    none.
    """
    layout, gpus, batch = plan.layout, plan.problem.cluster.gpus, plan.problem.job.global_batch
    model_gpus = layout.tp * layout.pp
    dp, rest = divmod(gpus, model_gpus * layout.cp)
    if rest:
        dp, rest = divmod(gpus, model_gpus)
    step = dp * layout.micro_batch
    if rest or batch % step == 0:
        return ""
    below = batch // step * step
    close = (one for one in (below, below + step) if abs(one - batch) <= batch / 4)
    near = [one for one in close if _are_all_hosts_fast(plan, one)]
    batches = " or ".join(map(str, near))
    return (
        f"a global batch of {batches} suits dp {dp} on all {gpus} GPUs; otherwise " if near else ""
    )


def _are_all_hosts_fast(plan: Plan, batch: int) -> bool:
    """Return True if PARC would use all hosts with a global batch of ``batch`` sequences.

    On the hosts in use, a step is assumed to take time in proportion to the batch.
    """
    problem = plan.problem
    changed = replace(problem, job=replace(problem.job, global_batch=batch))
    search = search_other_problem(changed, framework_of_problem(problem))
    if search is None:
        return False
    on_fewer = plan.search.ranked[0].step_seconds * batch / problem.job.global_batch
    return on_fewer > (1 - MIN_GAIN) * search.ranked[0].step_seconds


def _count_split_groups(
    placement: Placement, mesh: Mesh, axes: tuple[str, ...]
) -> tuple[int, int, tuple[str, ...]]:
    """Return (number of groups that span NVLink domains, number of all groups, two hosts).

    Only process groups over ``axes`` are counted. The two hosts belong to the first group that
    spans domains, and are in different domains.
    """
    # Node groups without visits are inside one host, so they span nothing.
    groups = node_groups(mesh, axes, placement.ranks_per_node)
    hosts = placement.hosts
    cut, example = 0, ("", "")
    for visit in groups.visits:
        first = hosts[visit[0]]
        other = next((n for n in visit if hosts[n].nvlink_domain != first.nvlink_domain), None)
        if other is None:
            continue
        if not cut:
            example = (first.name, hosts[other].name)
        cut += groups.parallel
    return cut, groups.count, example


def _gpus_per_domain(plan: Plan) -> int:
    """Return the number of GPUs that communicate without the network.

    These are the GPUs of an NVLink domain, or of a host if PCIe connects its GPUs.
    """
    node = plan.problem.cluster.node
    return max(node.nvlink_domain, node.gpus)


def _shorten_host_list(names: str) -> str:
    """Return the host list ``names``, cut at a comma if it has more than 80 characters."""
    return names if len(names) <= 80 else names[:80].rsplit(",", 1)[0] + ", ..."


PLACEMENT_CHECKS: tuple[PlanCheck[Plan], ...] = (
    PlanCheck(("T01", "T02"), _check_tensor_groups),
    PlanCheck(("M04",), _check_expert_groups),
    PlanCheck(("G04", "T15"), _check_idle_gpus),
)
"""Checks that ``check_placement`` and ``parc lint`` run."""
