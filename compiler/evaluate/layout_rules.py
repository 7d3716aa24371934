"""Rules on training layouts for every framework: dp_shard, model chunks, NVLink domains, hosts."""

from __future__ import annotations

from math import prod

from parc.backends.base import Framework
from parc.backends.shared.strategies import strategy_rules
from parc.compiler.diagnostics import Cause, Finding
from parc.compiler.diagnostics.wording import format_values
from parc.compiler.ir import Layout, Mesh, Problem, Schedule
from parc.compiler.ir.divisors import divisors
from parc.compiler.ir.rule import WORLD_FIELDS, Rule
from parc.compiler.topology.node_groups import ranks_per_node

MOST_CHUNKS = 1_000
"""Largest number of model chunks if the schedule sets no limit; no model has as many layers per
rank."""


def _tp_crosses_domains(problem: Problem, layout: Layout) -> bool:
    # Groups of tp consecutive ranks stay inside a domain, or fill whole domains, only if one size
    # divides the other.
    domain = _gpus_per_domain(problem)
    return domain % layout.tp != 0 and layout.tp % domain != 0


def _explain_tp_across_domains(problem: Problem, layout: Layout) -> Finding:
    domain = _gpus_per_domain(problem)
    valid = divisors(domain)
    small, large = min(layout.tp, domain), max(layout.tp, domain)
    return Finding(
        message=f"tensor-parallel groups of {layout.tp} cross NVLink domains of {domain} GPUs",
        label=f"{large} % {small} = {large % small}, must be 0",
        help=f"valid tp within one domain: {format_values(valid)}",
        fix=f"layout.tp: {max(n for n in valid if n <= layout.tp)}",
        causes=(Cause("cluster.node", f"{domain} GPUs share one NVLink domain"),),
    )


def _domain_rule_of_mesh(framework: Framework) -> Rule:
    """Return rule T02 for a framework in whose rank orders other axes vary faster than tp.

    The ranks of a tensor-parallel group are then not consecutive.
    """

    def crosses_domains(problem: Problem, layout: Layout) -> bool:
        axis = framework.device_meshes(layout)[0].axis_by_name("tp")
        if axis.stride == 1 or layout.tp == 1:
            return _tp_crosses_domains(problem, layout)
        # Blocks of size x stride consecutive ranks contain whole groups, and each border inside a
        # block cuts one of its groups.
        return _gpus_per_domain(problem) % (axis.size * axis.stride) != 0

    def explain_domains(problem: Problem, layout: Layout) -> Finding:
        faster = axes_faster_than_tp(framework.device_meshes(layout)[0])
        if not faster or layout.tp == 1:
            return _explain_tp_across_domains(problem, layout)
        return explain_faster_axes(
            layout, faster, _gpus_per_domain(problem), cut=f"groups of {layout.tp}"
        )

    return Rule("T02", ("layout.tp", "cluster.node"), crosses_domains, explain_domains, MESH_FIELDS)


def axes_faster_than_tp(mesh: Mesh) -> dict[str, int]:
    """Return axis -> size of the axes that vary faster than tp and are larger than 1."""
    stride = mesh.axis_by_name("tp").stride
    return {one.name: one.size for one in mesh.axes if one.size > 1 and one.stride < stride}


def explain_faster_axes(
    layout: Layout, faster: dict[str, int], domain: int, *, cut: str
) -> Finding:
    """Return the finding that axes faster than tp spread its groups over NVLink domains.

    Args:
        layout: layout with the groups.
        faster: axis -> size, for the axes that vary faster than tp and are larger than 1.
        domain: number of GPUs per NVLink domain.
        cut: the groups that span domains, such as ``groups of 8``.
    """
    stride = prod(faster.values())
    names = " and ".join(f"{axis} {size}" for axis, size in faster.items())
    valid = divisors(max(domain // stride, 1)) if domain % stride == 0 else [1]
    # Without the faster axes, the ranks of a group are consecutive.
    largest = max(faster, key=lambda axis: faster[axis])
    fix = f"layout.{largest}: 1" if domain % layout.tp == 0 else f"layout.tp: {valid[-1]}"
    return Finding(
        message=f"tensor-parallel {cut} ranks span NVLink domains of {domain} GPUs, because "
        f"{names} varies faster than tp in the rank order {layout.order}",
        label=f"a group spans {layout.tp} x {stride} = {layout.tp * stride} consecutive ranks",
        help=f"valid tp with {names}: {format_values(valid)}",
        fix=fix,
        causes=(Cause("cluster.node", f"{domain} GPUs share one NVLink domain"),),
    )


def _needs_more_hosts(problem: Problem, layout: Layout) -> bool:
    cluster = problem.cluster
    per_node = ranks_per_node(cluster.node.gpus, layout.world)
    return layout.world // per_node > cluster.nodes


def _explain_missing_hosts(problem: Problem, layout: Layout) -> Finding:
    cluster, world = problem.cluster, layout.world
    gpus = cluster.node.gpus
    need = world // ranks_per_node(gpus, world)
    if world > cluster.gpus:
        label = f"{world} ranks exceed {cluster.nodes} hosts x {gpus} GPUs = {cluster.gpus} GPUs"
    else:
        label = f"{world} ranks need {need} hosts; the cluster has {cluster.nodes}"
    product = f"tp {layout.tp} x cp {layout.cp} x pp {layout.pp} x dp {layout.dp}"
    model = layout.tp * layout.cp * layout.pp
    return Finding(
        message=f"{world} ranks do not fill {cluster.nodes} hosts of {gpus} GPUs evenly",
        label=label,
        help=f"{product} = {world} ranks must fill the GPUs of whole hosts, or use the same number "
        "of GPUs on every host",
        fix=_fix_for_all_gpus(cluster.gpus, model),
        causes=(Cause("cluster", f"the cluster has {cluster.gpus} usable GPUs"),),
    )


def _fix_for_all_gpus(gpus: int, model_ranks: int) -> str:
    """Return an edit of the spec that lets the layout use all GPUs.

    ``model_ranks`` is the number of ranks per model copy. If ``gpus`` is divisible by this number,
    the edit sets dp; otherwise the edit sets pp to auto.
    """
    if gpus % model_ranks == 0:
        return f"layout.dp: {gpus // model_ranks}"
    return "layout.pp: auto"


def _gpus_per_domain(problem: Problem) -> int:
    node = problem.cluster.node
    return max(node.nvlink_domain, node.gpus)


def _violates_shard_size(problem: Problem, layout: Layout) -> bool:
    # Rules of the framework report a dp that is not divisible by gtp.
    return max(layout.dp // layout.gtp, 1) != layout.dp_shard * layout.dp_replicate


def _explain_shard_size(problem: Problem, layout: Layout) -> Finding:
    shard = layout.dp_shard
    dp = layout.world // (layout.tp * layout.cp * layout.pp * layout.gtp)
    valid = divisors(dp)
    near = min(valid, key=lambda n: (abs(n - shard), n))
    return Finding(
        message=f"dp={dp} is not divisible by dp_shard={shard}",
        label=f"{dp} % {shard} = {dp % shard}, must be 0",
        help=f"valid dp_shard: {format_values(valid)}",
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
"""Smallest and largest number of model chunks per pipeline rank, by schedule."""


def _violates_chunk_limits(problem: Problem, layout: Layout) -> bool:
    low, high = CHUNKS[layout.schedule]
    return layout.pp > 1 and not low <= layout.vpp <= high


def _explain_chunk_limits(problem: Problem, layout: Layout) -> Finding:
    low, high = CHUNKS[layout.schedule]
    valid = f"{low}" if low == high else f"{low} or more"
    return Finding(
        message=f"schedule {layout.schedule} does not support {layout.vpp} model chunks per rank",
        label=f"vpp={layout.vpp}, must be {valid}",
        help=f"valid vpp for {layout.schedule}: {valid}",
        fix=f"layout.vpp: {low}",
        causes=(Cause("layout.schedule", f"the schedule is {layout.schedule}"),),
    )


def _has_schedule_without_pipeline(problem: Problem, layout: Layout) -> bool:
    # 1f1b is also the name of the schedule of a single stage. Chunks without a pipeline are another
    # mistake (P06), which implies the interleaved schedule.
    return layout.pp == layout.vpp == 1 and layout.schedule != "1f1b"


def _explain_schedule_without_pipeline(problem: Problem, layout: Layout) -> Finding:
    return Finding(
        message=f"schedule {layout.schedule} has no effect without a pipeline",
        label=f"pp={layout.pp}: there is a single stage",
        help="valid schedule with pp 1: auto; or set layout.pp to 2 or more",
        fix="layout.schedule: auto",
        causes=(Cause("layout.pp", f"pp is {layout.pp}"),),
    )


MESH_RULES: tuple[Rule, ...] = (
    Rule(
        "D22",
        ("layout.dp_shard", "layout.dp"),
        _violates_shard_size,
        _explain_shard_size,
        WORLD_FIELDS,
    ),
    Rule(
        "P21",
        ("layout.schedule", "layout.pp"),
        _has_schedule_without_pipeline,
        _explain_schedule_without_pipeline,
        ("pp", "vpp", "schedule"),
    ),
    Rule(
        "P20",
        ("layout.vpp", "layout.schedule"),
        _violates_chunk_limits,
        _explain_chunk_limits,
        ("pp", "vpp", "schedule"),
    ),
)
"""Rules on the mesh: dp is divisible by dp_shard; the schedule supports the number of chunks."""

DOMAIN_RULE = Rule(
    "T02", ("layout.tp", "cluster.node"), _tp_crosses_domains, _explain_tp_across_domains, ("tp",)
)
"""Rule on NVLink domains for rank orders in which tp varies fastest."""
HOST_RULE = Rule(
    "T11", ("layout.dp", "cluster"), _needs_more_hosts, _explain_missing_hosts, WORLD_FIELDS
)
"""Rule on the number of hosts."""
MESH_FIELDS = (*WORLD_FIELDS, "egtp", "ep", "etp", "order", "zero_stage")
"""Fields of a layout from which frameworks build their device meshes."""


def all_rules(problem: Problem, framework: Framework) -> tuple[Rule, ...]:
    """Return all rules for a training layout.

    First come strategies that the framework cannot express, then rules on the mesh, rules of the
    framework, and rules on hosts and NVLink domains. Violations are counted in this order.
    """
    inexpressible = strategy_rules(framework.name, framework.strategies)
    domains = DOMAIN_RULE
    if not all(order.startswith("tp-") for order in framework.rank_orders(problem)):
        domains = _domain_rule_of_mesh(framework)
    return (*inexpressible, *MESH_RULES, *framework.rules(problem), domains, HOST_RULE)
