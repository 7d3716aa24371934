"""Placement problem of a layout: messages between node ranks, hosts, and links between hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import inf, prod
from typing import Protocol

from parc.compiler.ir import (
    AxisTraffic,
    Cluster,
    Host,
    Layout,
    Mesh,
    PlacementPolicy,
    Plan,
    StepTime,
)
from parc.compiler.placement.order.equivalent_hosts import (
    HostSites,
    group_hosts_into_sites,
    sort_hosts_by_switch,
)
from parc.compiler.placement.order.lower_bounds import least_message_seconds
from parc.compiler.placement.order.orders_from_boxes import node_axes_within, node_axis_sizes
from parc.compiler.placement.order.placement_problem import PlacementProblem
from parc.compiler.placement.order.switch_cuts import CutModel, cut_model_of
from parc.compiler.placement.order.switch_level import SwitchLevel
from parc.compiler.topology.node_groups import (
    NodeGroups,
    first_node_group,
    node_groups,
    ranks_per_node,
)
from parc.compiler.topology.uplinks import (
    Pattern,
    TrafficFlow,
    build_traffic_flow,
    message_share,
)

TRAFFIC_GROUPS: dict[str, tuple[str, tuple[str, ...], Pattern]] = {
    "tp": ("dense", ("tp",), "ring"),
    "cp": ("dense", ("cp",), "ring"),
    "cp_a2a": ("dense", ("cp_a2a",), "all-to-all"),
    "cp_p2p": ("dense", ("cp_p2p",), "ring"),
    "dp_cp": ("dense", ("dp", "cp"), "ring"),
    "pp": ("dense", ("pp",), "line"),
    "ep": ("expert", ("ep",), "all-to-all"),
    "etp": ("expert", ("tp",), "ring"),
    "edp": ("expert", ("dp",), "ring"),
    "dp_shard_cp": ("dense", ("dp_shard", "cp"), "ring"),
    "edp_shard": ("expert", ("dp_shard",), "ring"),
    "dp_replicate": ("dense", ("dp_replicate",), "ring"),
    "gtp": ("dense", ("gtp",), "ring"),
    "egtp": ("expert", ("gtp",), "ring"),
}
"""Parallel axis in the estimate -> (mesh, axes that the process groups span, pattern of the
messages)."""

PLACEMENT_TIE = 0.002
"""Tolerance as a fraction of the step time. Two orders of hosts count as equal if their exposed
times differ by less, because the estimate is only accurate to a few percent."""

ALMOST_NOTHING = 2.0**-20
"""Weight of bytes that a placement policy lets cross switches first. The weight is not 0, so that
these bytes decide between orders that are equal in all other bytes."""
_PIPELINES_FIRST = frozenset({"pp"})
_REPLICAS_FIRST = frozenset({"dp_cp", "edp", "dp_shard_cp", "edp_shard", "dp_replicate"})
CROSSES_FIRST: dict[PlacementPolicy, frozenset[str]] = {
    "auto": _PIPELINES_FIRST,
    "pp-across-racks": _PIPELINES_FIRST,
    "dp-across-racks": _REPLICAS_FIRST,
    "names": frozenset(),
}
"""Placement policy -> parallel axes whose traffic crosses switches first."""

TERMS = {
    axis: "dp_seconds" if axis.startswith(("dp", "edp")) else f"{axis.partition('_')[0]}_seconds"
    for axis in TRAFFIC_GROUPS
} | dict.fromkeys(("etp", "gtp", "egtp"), "tp_seconds")
"""Parallel axis -> field of the estimated step time that contains the exposed seconds of this axis.
Several axes can have the same field."""


class TimedTraffic(Protocol):
    """Protocol for the parts of an estimate that placement needs."""

    @property
    def time(self) -> StepTime:
        """Step time at full bandwidth between hosts."""

    @property
    def traffic(self) -> tuple[AxisTraffic, ...]:
        """Traffic of each parallel axis in use."""


def placement_tie_seconds(estimate: TimedTraffic) -> float:
    """Return the difference in exposed seconds up to which two orders of hosts count as equal."""
    return PLACEMENT_TIE * estimate.time.seconds_before_placement


def build_placement_problem(
    cluster: Cluster,
    meshes: tuple[Mesh, Mesh],
    layout: Layout,
    estimate: TimedTraffic,
    policy: PlacementPolicy = "auto",
) -> PlacementProblem:
    """Return the placement problem of ``layout`` on ``cluster``.

    The problem contains the messages that node ranks exchange in one step, and the links of the
    cluster. Messages are grouped by phase: a phase is the traffic of one parallel axis (tp, dp,
    ...) between hosts. The exposure of a phase is the fraction of its time in ``estimate`` that
    does not overlap with computation.

    Args:
        cluster: cluster with the usable hosts.
        meshes: dense mesh and expert mesh of the layout.
        layout: parallel sizes of the job.
        estimate: source of the bytes and of the exposure of each phase.
        policy: ``layout.placement`` of the spec. With ``auto``, orders of hosts are compared by
            time first. With any other policy, all orders count as equally fast.
    """
    hosts, sites = hosts_and_sites(cluster)
    per_node = ranks_per_node(cluster.node.gpus, layout.world)
    flows = _flows_with_cut_models(
        meshes,
        per_node,
        layout,
        estimate.traffic,
        exposed_fractions(estimate.time, estimate.traffic),
    )
    return PlacementProblem(
        nodes=meshes[0].world // per_node,
        flows=tuple(one for _, one, _ in flows),
        cut_models=tuple(model for *_, model in flows),
        node_axis_sizes=node_axis_sizes(meshes, per_node),
        sites=sites,
        hosts=hosts,
        weights=tuple(
            ALMOST_NOTHING if axis in CROSSES_FIRST[policy] else 1.0 for axis, *_ in flows
        ),
        tie_seconds=placement_tie_seconds(estimate) if policy == "auto" else inf,
    )


_latest: list[tuple[Cluster, tuple[Host, ...], HostSites]] = []
"""Latest result of ``hosts_and_sites`` and its cluster, because a search places many layouts."""


def hosts_and_sites(cluster: Cluster) -> tuple[tuple[Host, ...], HostSites]:
    """Return the usable hosts of ``cluster``, sorted by switch, and their sites."""
    # Compared by identity, because hashing a cluster takes longer than sorting its hosts.
    found = _latest[0] if _latest else None
    if found is None or found[0] is not cluster:
        hosts = sort_hosts_by_switch(cluster)
        found = (cluster, tuple(hosts), group_hosts_into_sites(cluster, hosts))
        # Another thread may replace the entry at any time, so the result is not read back.
        _latest[:] = [found]
    return found[1:]


def placement_problem_of_plan(plan: Plan, cluster: Cluster) -> PlacementProblem:
    """Return the placement problem of the layout of ``plan`` on ``cluster``."""
    meshes = (plan.placement.dense, plan.placement.expert)
    policy = plan.problem.pins.placement or "auto"
    return build_placement_problem(cluster, meshes, plan.layout, plan.estimate, policy)


def traffic_flows(
    meshes: tuple[Mesh, Mesh], per_node: int, layout: Layout, estimate: TimedTraffic
) -> Iterator[tuple[str, TrafficFlow]]:
    """Yield (parallel axis, messages of this axis) for each axis with traffic between hosts."""
    exposure = exposed_fractions(estimate.time, estimate.traffic)
    for axis, one, _ in _flows_with_cut_models(
        meshes, per_node, layout, estimate.traffic, exposure
    ):
        yield axis, one


# A plan is placed, checked and shown in a report with the same flows; one entry serves all of them.
@lru_cache(maxsize=1)
def _flows_with_cut_models(
    meshes: tuple[Mesh, Mesh],
    per_node: int,
    layout: Layout,
    traffic_by_axis: tuple[AxisTraffic, ...],
    exposure: tuple[tuple[str, float], ...],
) -> tuple[tuple[str, TrafficFlow, CutModel], ...]:
    """Return (parallel axis, messages, cut model) for each axis with traffic between hosts.

    ``exposure`` lists the exposed fraction of the communication time of each parallel axis.

    The cut model describes the process groups of the axis. Lower bounds on the traffic are computed
    from this model (``order/switch_cuts.py``).
    """
    found = []
    fractions = dict(exposure)
    node_sizes = node_axis_sizes(meshes, per_node)
    for traffic in traffic_by_axis:
        if traffic.axis not in TRAFFIC_GROUPS or not traffic.bytes_per_rank:
            continue
        mesh, axes, pattern = _groups_of_axis(meshes, layout, traffic.axis)
        groups = node_groups(mesh, axes, per_node)
        # Groups inside a host have no visits: they send nothing over the network.
        if groups.visits:
            model = _cut_model_of_groups(mesh, axes, pattern, groups, node_sizes)
            sent = build_traffic_flow(
                groups, pattern, traffic.bytes_per_rank, fractions[traffic.axis]
            )
            found.append((traffic.axis, sent, model))
    return tuple(found)


def least_seconds_per_byte(
    meshes: tuple[Mesh, Mesh],
    per_node: int,
    layout: Layout,
    axes: Iterable[str],
    levels: tuple[SwitchLevel, ...],
) -> dict[str, float]:
    """Return lower bounds on the seconds of the traffic of some parallel ``axes``, by axis.

    The bounds are seconds per byte that a rank sends, and hold for all orders of hosts. Only groups
    that some switch of ``levels`` must cut are counted.
    """
    found = {}
    node_sizes = node_axis_sizes(meshes, per_node)
    for axis in axes:
        mesh, names, pattern = _groups_of_axis(meshes, layout, axis)
        groups = first_node_group(mesh, names, per_node)
        if groups.visits:
            model = _cut_model_of_groups(mesh, names, pattern, groups, node_sizes)
            seconds = least_message_seconds(model, groups.parallel, levels)
            if seconds:
                found[axis] = seconds * message_share(groups.size, pattern)
    return found


def _groups_of_axis(
    meshes: tuple[Mesh, Mesh], layout: Layout, axis: str
) -> tuple[Mesh, tuple[str, ...], Pattern]:
    """Return the mesh, the mesh axes and the pattern of the messages of a parallel ``axis``."""
    name, axes, pattern = TRAFFIC_GROUPS[axis]
    if pattern == "line" and layout.vpp > 1:
        # Interleaving closes the line: the last stage sends chunks back to the first.
        pattern = "ring"
    # With a2a, every context rank exchanges attention heads for tokens with every other one.
    if axis == "cp" and layout.cp_comm == "a2a":
        pattern = "all-to-all"
    return meshes[name == "expert"], axes, pattern


def _cut_model_of_groups(
    mesh: Mesh,
    axes: tuple[str, ...],
    pattern: Pattern,
    groups: NodeGroups,
    node_sizes: tuple[int, ...],
) -> CutModel:
    """Return the cut model of the process ``groups`` over some ``axes`` of ``mesh``.

    ``node_sizes`` is the result of ``node_axis_sizes`` for both meshes.
    """
    nodes = prod(node_sizes)
    inside = node_axes_within(mesh.select_axes(*axes), node_sizes, mesh.world // nodes)
    size = prod(node_sizes[index] for index in inside)
    return cut_model_of(groups, pattern, inside, size, nodes)


def exposed_fractions(
    time: StepTime, traffic_by_axis: tuple[AxisTraffic, ...]
) -> tuple[tuple[str, float], ...]:
    """Return the exposed fraction (at most 1) of the communication time of each parallel axis.

    The result contains (axis, fraction) pairs. ``time`` and ``traffic_by_axis`` are those of the
    estimate of a layout.
    """
    # Several axes may share a term, so their full times are added before the term is divided.
    full = dict.fromkeys(TERMS.values(), 0.0)
    for traffic in traffic_by_axis:
        if traffic.axis in TERMS and traffic.gb_per_s:
            full[TERMS[traffic.axis]] += traffic.bytes_per_rank / (traffic.gb_per_s * 1e9)
    shares = {term: _exposed_share(getattr(time, term), spent) for term, spent in full.items()}
    return tuple((axis, shares[term]) for axis, term in TERMS.items())


def _exposed_share(part: float, whole: float) -> float:
    """Return ``part`` / ``whole``, limited to 1; the result is 1 if ``whole`` is 0."""
    return min(1.0, part / whole) if whole else 1.0
