"""Network traffic of one step by group family and network level, and its exposed time."""

from __future__ import annotations

from typing import NamedTuple

from parc.compiler.ir import Layout, Plan
from parc.compiler.placement.build_placement_problem import TERMS, traffic_flows
from parc.compiler.report.formatting import format_quantity, format_seconds, format_without_exponent
from parc.compiler.report.page.figure import WIDTH, Canvas, Figure, HtmlTable, html_table
from parc.compiler.topology.tree import count_hosts_below_switches, number_switches, uplink_gb_per_s
from parc.compiler.topology.uplinks import TrafficFlow, messages_leaving_zones, zone_egress_by_node

INKS = {
    "tp": "k1",
    "cp": "k2",
    "cp_a2a": "k3",
    "cp_p2p": "k2",
    "ep": "k6",
    "etp": "k1",
    "gtp": "k8",
    "egtp": "k8",
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
    "gtp": "weight shards",
    "egtp": "weight shards of experts",
    "pp": "pipeline",
    "dp_cp": "data",
    "dp_shard_cp": "data, shards",
    "dp_replicate": "data, replicas",
    "edp": "data of experts",
    "edp_shard": "data of experts, shards",
}
"""Mesh axis of a kind of process group -> name of this kind on the page."""


class LinkTraffic(NamedTuple):
    """Traffic on one network level.

    ``name`` describes the level and ``gb_per_s`` is the rate of one of its links.
    """

    name: str
    gb_per_s: float
    sent: tuple[float, ...]
    """Bytes per step, one item per kind of process group. They are counted per GPU for NVLink, and
    on the busiest link for all other levels."""


class TrafficChart(NamedTuple):
    """Figure of the network traffic, with its legend and two tables."""

    figure: Figure
    legend: tuple[tuple[str, str], ...]
    links: HtmlTable
    """One row per network level: its rate, and the bytes of each kind of process group."""
    exposed: HtmlTable
    """One row per kind of process group: bytes sent per GPU and step, and exposed time. Several
    kinds may share one term of the estimate."""


def traffic_chart(plan: Plan) -> TrafficChart | None:
    """Draw for each network level how long its busiest link is busy in one step.

    A bar has one part per kind of process group, such as tensor or data parallel groups. Return
    None if a step has no traffic.
    """
    families = [one.axis for one in plan.estimate.traffic if one.bytes_per_rank]
    if not families:
        return None
    links = _traffic_by_link(plan, families)
    titles = tuple(TITLES[name] for name in families)
    return TrafficChart(
        figure=_busy_time_figure(links, [INKS[name] for name in families]),
        legend=tuple((TITLES[name], INKS[name]) for name in families),
        links=html_table(("level", "rate", *titles), map(_link_cells, links)),
        exposed=html_table(
            ("family", "sent per GPU", "exposed time"), _exposed_time_rows(plan, families)
        ),
    )


def _link_cells(link: LinkTraffic) -> tuple[str, ...]:
    bytes_sent = (format_quantity(sent, "B") if sent else "-" for sent in link.sent)
    return (link.name, f"{format_without_exponent(link.gb_per_s)} GB/s", *bytes_sent)


def _exposed_time_rows(plan: Plan, families: list[str]) -> list[tuple[str, str, str]]:
    time = plan.estimate.time
    sent = {one.axis: one.bytes_per_rank for one in plan.estimate.traffic}
    rows, shown = [], set()
    for name in families:
        term = TERMS[name]
        # The estimate has one exposed time for such families, which must not be listed twice.
        text = "included in the row above" if term in shown else format_seconds(getattr(time, term))
        shown.add(term)
        rows.append((TITLES[name], format_quantity(sent[name], "B"), text))
    return rows


def _traffic_by_link(plan: Plan, families: list[str]) -> list[LinkTraffic]:
    """Return the traffic per GPU on NVLink, on the NICs of the busiest host, and on uplinks.

    Each network level with more than one switch contributes one item for its busiest uplink.
    ``families`` are the mesh axes of the process groups to count.
    """
    placement, cluster = plan.placement, plan.problem.cluster
    node, per_node = cluster.node, placement.ranks_per_node
    meshes = (placement.dense, placement.expert)
    flows = dict(traffic_flows(meshes, per_node, plan.layout, plan.estimate))
    whole = {one.axis: one.bytes_per_rank for one in plan.estimate.traffic}
    hosts = placement.hosts
    numbers: dict[str, int] = {}
    domain = [numbers.setdefault(host.nvlink_domain, len(numbers)) for host in hosts]
    out = [_egress_bytes_by_host(flows.get(name), domain) for name in families]
    # Traffic that does not leave the NVLink domain of its host, per GPU.
    inside = tuple(
        whole[name]
        * max(0.0, 1 - sum(sent) / _bytes_sent_by_all_gpus(plan.layout, name, whole[name]))
        for name, sent in zip(families, out, strict=True)
    )
    kind = {"nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe"}[node.link_kind]
    links = [LinkTraffic(f"{kind}, per GPU", node.link_gb_per_s, inside)]
    if len(hosts) > 1:
        fullest = tuple(max(sent, default=0.0) for sent in out)
        links.append(
            LinkTraffic("NICs of the busiest host", node.nics * node.nic_gbps / 8, fullest)
        )
    for level, tier in enumerate(cluster.switch_tiers):
        zone = number_switches(hosts, level)
        # All hosts are below one switch of this level, so nothing crosses its uplinks.
        if len(set(zone)) < 2:
            continue
        largest = max(count_hosts_below_switches(cluster, level).values())
        rate = uplink_gb_per_s(cluster, largest, level)
        sent = tuple(_busiest_uplink_bytes(flows.get(name), zone) for name in families)
        links.append(LinkTraffic(f"busiest uplink of a {tier.name}", rate, sent))
    return links


def _bytes_sent_by_all_gpus(layout: Layout, name: str, rank_bytes: float) -> float:
    """Return the bytes that all GPUs together send per step in the groups of the axis ``name``.

    ``rank_bytes`` is the traffic of a rank with two pipeline neighbors. Without virtual stages,
    the first and the last pipeline stage have only one neighbor each.
    """
    open_ends = name == "pp" and layout.vpp == 1
    return rank_bytes * layout.world * ((layout.pp - 1) / layout.pp if open_ends else 1)


def _egress_bytes_by_host(flow: TrafficFlow | None, zone: list[int]) -> list[float]:
    """Return the bytes per step that each host sends out of its NVLink domain.

    ``zone`` contains the number of the NVLink domain of each host.
    """
    if flow is None:
        return []
    return [messages * flow.unit_bytes for messages in zone_egress_by_node(flow, zone).values()]


def _busiest_uplink_bytes(flow: TrafficFlow | None, zone: tuple[int, ...]) -> float:
    return (
        max(messages_leaving_zones(flow, zone).values(), default=0) * flow.unit_bytes
        if flow
        else 0.0
    )


def _busy_time_figure(links: list[LinkTraffic], inks: list[str]) -> Figure:
    """Draw one bar per network level that shows how long its busiest link is busy in one step.

    A bar has one part per kind of process group, in the colors ``inks``.
    """
    canvas = Canvas(WIDTH)
    left, right, row = 190, 90, 34
    busy = [sum(link.sent) / (link.gb_per_s * 1e9) if link.gb_per_s else 0.0 for link in links]
    scale = (WIDTH - left - right) / (max(busy) or 1.0)
    for index, link in enumerate(links):
        y, x = index * row + 4, float(left)
        canvas.write_text(left - 10, y + 17, link.name, "end", role="small")
        canvas.draw_box("idle", left, y, WIDTH - left - right, 24)
        for ink, sent in zip(inks, link.sent, strict=True):
            wide = scale * sent / (link.gb_per_s * 1e9) if link.gb_per_s else 0.0
            if wide >= 0.05:
                canvas.draw_box(ink, x, y, wide, 24)
            x += wide
        canvas.write_text(x + 6, y + 17, format_seconds(busy[index]), role="small")
    return canvas.build_figure("busy time of links in one step, by level", len(links) * row)
