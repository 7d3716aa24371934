"""Seconds that the placement of a layout adds to its estimated step time.

The estimate of a layout assumes full bandwidth between hosts. On oversubscribed uplinks, or with
NVLink domains of several hosts, the step time also depends on which hosts share a switch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from parc.compiler.cost.setup.cost_model import CostModel
from parc.compiler.cost.step.step_time import step_time
from parc.compiler.evaluate.estimate_layout import (
    estimate_layout,
    traffic_by_axis,
    with_placement_seconds,
)
from parc.compiler.ir import AxisTraffic, Cluster, Estimate, Layout, Placement, StepTime
from parc.compiler.ir.frozen import frozen
from parc.compiler.placement.build_placement_problem import (
    TERMS,
    TRAFFIC_GROUPS,
    build_placement_problem,
    exposed_fractions,
    hosts_and_sites,
    least_seconds_per_byte,
    traffic_flows,
)
from parc.compiler.placement.order.lower_bounds import switch_levels
from parc.compiler.placement.order.search_orders import QUICK
from parc.compiler.placement.place_ranks import place_ranks
from parc.compiler.topology.node_groups import ranks_per_node, splits_hosts

MOST_RANKS = 32_768
"""Number of ranks above which candidates are not placed, because placement would dominate the time
of a search."""


def is_placement_relevant(cluster: Cluster) -> bool:
    """Return True if a search must compare all layouts with their placement.

    False if the cluster has more than MOST_RANKS GPUs, or if the order of hosts makes no
    difference. The order makes no difference if NVLink domains end at the host and, in addition,
    the cluster has only one rack or has full bandwidth at every level.
    """
    if cluster.nodes < 2 or cluster.gpus > MOST_RANKS:
        return False
    # At full bandwidth at every level, it does not matter which switches traffic crosses.
    thin = any(level.oversubscription > 1 for level in cluster.switch_tiers)
    return (thin and len(cluster.racks) > 1) or cluster.node.nvlink_domain > cluster.node.gpus


def can_split_hosts(cluster: Cluster) -> bool:
    """Return True if a search must place the layouts that split hosts (``has_split_hosts``)."""
    return cluster.node.gpus > 1 and cluster.nodes > 1 and cluster.gpus <= MOST_RANKS


def has_split_hosts(cost_model: CostModel, layout: Layout) -> bool:
    """Return True if equal groups or pipeline hops of ``layout`` span different numbers of hosts.

    Its estimate assumes the links of the first one. So the step takes longer than estimated, in
    every order of the hosts.
    """
    per_node = ranks_per_node(cost_model.problem.cluster.node.gpus, layout.world)
    meshes = cost_model.framework.device_meshes(layout)
    return any(splits_hosts(mesh, per_node) for mesh in meshes)


def placement_scorer(cost_model: CostModel) -> Callable[[Layout], float]:
    """Return a function: layout -> seconds per step that its placement adds to the estimate.

    The result is 0 if neither ``is_placement_relevant`` nor ``has_split_hosts`` is True.
    """
    is_relevant = is_placement_relevant(cost_model.problem.cluster)
    may_split = can_split_hosts(cost_model.problem.cluster)

    def added_seconds(layout: Layout) -> float:
        """Return the seconds per step that the placement of ``layout`` adds."""
        if is_relevant or (may_split and has_split_hosts(cost_model, layout)):
            return PlacementOfSizes(cost_model, layout).added_seconds
        return 0.0

    return added_seconds


@frozen
class LayoutTraffic:
    """Step time and traffic of one layout: the parts of its estimate that its placement needs."""

    time: StepTime
    traffic: tuple[AxisTraffic, ...]

    def seconds_added(self, seconds_per_byte: dict[str, float]) -> float:
        """Return the seconds that the traffic adds to the estimated step time; at least 0.

        ``seconds_per_byte`` contains the time of each parallel axis per byte that a rank sends.
        """
        fractions = dict(exposed_fractions(self.time, self.traffic))
        exposed = sum(
            row.bytes_per_rank * fractions[row.axis] * seconds_per_byte[row.axis]
            for row in self.traffic
            if row.axis in seconds_per_byte
        )
        return max(exposed - _fabric_seconds(self.time, self.traffic), 0.0)


class PlacementOfSizes:
    """Placement of one layout, and of others with its parallel sizes and virtual pipeline size.

    Their process groups are the same, and the bytes that these send differ little. So the order of
    hosts that is best for one of these layouts is used for all.
    """

    def __init__(self, cost_model: CostModel, layout: Layout) -> None:
        """Bound the time of the process groups of ``layout``, without placing them."""
        self._cost_model, self._layout = cost_model, layout
        cluster = cost_model.problem.cluster
        per_node = ranks_per_node(cluster.node.gpus, layout.world)
        nodes = layout.world // per_node
        _, sites = hosts_and_sites(cluster)
        levels = cost_model.cached(("switch levels", nodes), lambda: switch_levels(sites, nodes))
        self._traffic = traffic_by_axis(cost_model, layout)
        axes = tuple(row.axis for row in self._traffic if row.axis in TRAFFIC_GROUPS)
        meshes = cost_model.framework.device_meshes(layout)
        self._least = least_seconds_per_byte(meshes, per_node, layout, axes, levels)
        self._groups = (*meshes, axes, layout.vpp > 1, layout.cp_comm)

    @cached_property
    def least_added_seconds(self) -> float:
        """Return a lower bound of the seconds that a placement adds to the step of the layout."""
        # Without the exposed fractions, which take longer to compute than all other steps.
        if all(
            row.level == "fabric" and self._least[row.axis] * row.gb_per_s * 1e9 <= 1
            for row in self._traffic
            if row.axis in self._least
        ):
            return 0.0
        return self._timed_traffic.seconds_added(self._least)

    @cached_property
    def added_seconds(self) -> float:
        """Return the seconds that a quickly searched placement adds to the step of the layout."""
        return self._timed_traffic.seconds_added(self._seconds_per_byte)

    def added_seconds_of(self, layout: Layout, time: StepTime) -> float:
        """Return ``added_seconds`` of another layout, whose step time is ``time``."""
        traffic = LayoutTraffic(time, traffic_by_axis(self._cost_model, layout))
        return traffic.seconds_added(self._seconds_per_byte)

    @cached_property
    def _timed_traffic(self) -> LayoutTraffic:
        """Return the traffic of the layout with its step time."""
        return LayoutTraffic(step_time(self._cost_model, self._layout), self._traffic)

    @property
    def _seconds_per_byte(self) -> dict[str, float]:
        """Return the seconds of each parallel axis on the chosen hosts, per byte of a rank."""
        # Variants of the framework have layouts with the same process groups.
        return self._cost_model.cached(("placement", self._groups), self._place)

    def _place(self) -> dict[str, float]:
        """Compute ``_seconds_per_byte`` on hosts that suit the layout."""
        problem, traffic = self._cost_model.problem, self._timed_traffic
        framework, layout = self._cost_model.framework, self._layout
        placement = place_ranks(problem, framework, layout, traffic, QUICK)
        meshes = (placement.dense, placement.expert)
        links = build_placement_problem(problem.cluster, meshes, layout, traffic)
        site = links.sites.site_by_host
        phases = links.seconds_of_phases([site[host.name] for host in placement.hosts])
        flows = traffic_flows(meshes, placement.ranks_per_node, layout, traffic)
        sent = {row.axis: row.bytes_per_rank for row in self._traffic}
        pairs = zip(flows, phases, strict=True)
        return {axis: seconds / sent[axis] for (axis, _), seconds in pairs}


def add_placement_seconds(
    cost_model: CostModel, layout: Layout, estimate: Estimate, placement: Placement
) -> Estimate:
    """Return the estimate of ``layout`` on the hosts of ``placement``.

    Its step includes the seconds that groups wait for links that they share on these hosts.
    """
    seconds = _seconds_added(estimate, placement.proof.exposed_seconds)
    return with_placement_seconds(cost_model, layout, estimate, seconds)


def step_seconds_on_hosts(cost_model: CostModel, layout: Layout, placement: Placement) -> float:
    """Return the step time in seconds of ``layout`` on the hosts of ``placement``.

    The parallel sizes of ``layout`` must be those of ``placement``, so that alternatives to the
    layout of a plan can be compared with the plan.
    """
    cluster = cost_model.problem.cluster
    estimate = estimate_layout(cost_model, layout)
    meshes = (placement.dense, placement.expert)
    problem = build_placement_problem(cluster, meshes, layout, estimate)
    site = problem.sites.site_by_host
    exposed = problem.cost([site[host.name] for host in placement.hosts]).exposed_seconds
    return estimate.time.total_seconds + _seconds_added(estimate, exposed)


def _seconds_added(estimate: Estimate, exposed_seconds: float) -> float:
    """Return the part of ``exposed_seconds`` that ``estimate`` does not contain; at least 0.

    Only traffic that leaves the NVLink domain is compared.
    """
    # Negative if the estimate has more: it includes latencies, placement only bytes over links.
    return max(exposed_seconds - _fabric_seconds(estimate.time, estimate.traffic), 0.0)


def _fabric_seconds(time: StepTime, traffic: tuple[AxisTraffic, ...]) -> float:
    """Return the exposed seconds of the estimate for traffic that leaves the NVLink domain."""
    outside = {TERMS[row.axis] for row in traffic if row.level == "fabric"}
    return float(sum(getattr(time, term) for term in sorted(outside)))
