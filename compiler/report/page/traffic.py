"""Bytes of a step by family of groups and level of the topology, and what is exposed."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from parc.compiler.ir import Layout, Plan
from parc.compiler.placement.build_placement_problem import TERMS, traffic_flows
from parc.compiler.report.numbers import plain, quantity, seconds
from parc.compiler.report.page.bars import WIDTH
from parc.compiler.report.page.figure import Canvas, Figure
from parc.compiler.report.page.grid import Grid, grid
from parc.compiler.topology.tree import uplink_gb_per_s, zones
from parc.compiler.topology.uplinks import Flow, host_egress, zone_egress

INKS = {
    "tp": "k1",
    "cp": "k2",
    "cp_a2a": "k3",
    "cp_p2p": "k2",
    "ep": "k6",
    "etp": "k1",
    "pp": "k4",
    "dp_cp": "k5",
    "dp_shard_cp": "k5",
    "dp_replicate": "k8",
    "edp": "k7",
    "edp_shard": "k7",
}
TITLES = {
    "tp": "tensor",
    "cp": "context",
    "cp_a2a": "context, all-to-all",
    "cp_p2p": "context, ring",
    "ep": "expert",
    "etp": "tensor of experts",
    "pp": "pipeline",
    "dp_cp": "data",
    "dp_shard_cp": "data, shards",
    "dp_replicate": "data, copies",
    "edp": "data of experts",
    "edp_shard": "data of experts, shards",
}
"""Axis of the estimate -> what people call the family."""


class Link(NamedTuple):
    """One level: its name, what a GPU's share of it carries, and how full its fullest link is."""

    name: str
    gb_per_s: float
    sent: tuple[float, ...]
    """Bytes a GPU (NVLink) or the fullest link of the level carries in a step, by family."""


class TrafficChart(NamedTuple):
    """The picture and the rows beside it."""

    figure: Figure
    legend: tuple[tuple[str, str], ...]
    links: Grid
    """Level, rate, bytes of every family."""
    exposed: Grid
    """Family, bytes that a GPU sends in a step, seconds exposed; several families may share one
    term of the estimate."""


def traffic_chart(plan: Plan) -> TrafficChart | None:
    """Seconds that each family keeps the fullest link of each level busy; None on one GPU."""
    families = [one.axis for one in plan.estimate.traffic if one.bytes_per_rank]
    if not families:
        return None
    links = _links(plan, families)
    titles = tuple(TITLES[name] for name in families)
    return TrafficChart(
        figure=_figure(links, [INKS[name] for name in families]),
        legend=tuple((TITLES[name], INKS[name]) for name in families),
        links=grid(("level", "rate", *titles), map(_cells, links)),
        exposed=grid(("family", "a GPU sends", "the step waits"), _exposed(plan, families)),
    )


def _cells(link: Link) -> tuple[str, ...]:
    bytes_sent = (quantity(sent, "B") if sent else "-" for sent in link.sent)
    return (link.name, f"{plain(link.gb_per_s)} GB/s", *bytes_sent)


def _exposed(plan: Plan, families: list[str]) -> list[tuple[str, str, str]]:
    time = plan.estimate.time
    sent = {one.axis: one.bytes_per_rank for one in plan.estimate.traffic}
    rows, told = [], set()
    for name in families:
        term = TERMS[name]
        text = "(with the line above)" if term in told else seconds(getattr(time, term))
        told.add(term)
        rows.append((TITLES[name], quantity(sent[name], "B"), text))
    return rows


def _links(plan: Plan, families: list[str]) -> list[Link]:
    """NVLink first, then hosts, then the uplinks of every tier with more than one switch."""
    placement, cluster = plan.placement, plan.problem.cluster
    node, per_node = cluster.node, placement.ranks_per_node
    meshes = (placement.dense, placement.expert)
    flows = dict(traffic_flows(meshes, per_node, plan.layout, plan.estimate))
    whole = {one.axis: one.bytes_per_rank for one in plan.estimate.traffic}
    hosts = placement.hosts
    numbers: dict[str, int] = {}
    domain = [numbers.setdefault(host.nvlink_domain, len(numbers)) for host in hosts]
    out = [_by_host(flows.get(name), domain) for name in families]
    inside = tuple(
        whole[name] * max(0.0, 1 - sum(sent) / _sent(plan.layout, name, whole[name]))
        for name, sent in zip(families, out, strict=True)
    )
    kind = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe"}[node.link_kind]
    links = [Link(f"{kind}, a GPU", node.link_gb_per_s, inside)]
    if len(hosts) > 1:
        fullest = tuple(max(sent, default=0.0) for sent in out)
        links.append(Link("NICs of the fullest host", node.nics * node.nic_gbps / 8, fullest))
    for level, tier in enumerate(cluster.levels):
        zone = zones(hosts, level)
        if len(set(zone)) < 2:
            continue
        largest = max(Counter(zone).values())
        rate = uplink_gb_per_s(cluster, largest, level)
        sent = tuple(_fullest_zone(flows.get(name), zone) for name in families)
        links.append(Link(f"fullest uplink of a {tier.name}", rate, sent))
    return links


def _sent(layout: Layout, name: str, rank_bytes: float) -> float:
    """Bytes that all GPUs send; both ends of a pipeline have one neighbour in place of two."""
    open_ends = name == "pp" and layout.vpp == 1
    return rank_bytes * layout.world * ((layout.pp - 1) / layout.pp if open_ends else 1)


def _by_host(flow: Flow | None, zone: list[int]) -> list[float]:
    """Bytes that leave the zone of their host, by host."""
    if flow is None:
        return []
    return [messages * flow.unit_bytes for messages in host_egress(flow, zone).values()]


def _fullest_zone(flow: Flow | None, zone: tuple[int, ...]) -> float:
    return max(zone_egress(flow, zone).values(), default=0) * flow.unit_bytes if flow else 0.0


def _figure(links: list[Link], inks: list[str]) -> Figure:
    """A bar a level: seconds that its fullest link is busy in one step, family by family."""
    canvas = Canvas(WIDTH)
    left, right, row = 190, 90, 34
    busy = [sum(link.sent) / (link.gb_per_s * 1e9) if link.gb_per_s else 0.0 for link in links]
    scale = (WIDTH - left - right) / (max(busy) or 1.0)
    for index, link in enumerate(links):
        y, x = index * row + 4, float(left)
        canvas.word(left - 10, y + 17, link.name, "end", role="small")
        canvas.box("idle", left, y, WIDTH - left - right, 24)
        for ink, sent in zip(inks, link.sent, strict=True):
            wide = scale * sent / (link.gb_per_s * 1e9) if link.gb_per_s else 0.0
            if wide >= 0.05:
                canvas.box(ink, x, y, wide, 24)
            x += wide
        canvas.word(x + 6, y + 17, seconds(busy[index]), role="small")
    return canvas.figure("seconds that links are busy in one step, by level", len(links) * row)
