"""Reader of InfiniBand fabrics: output of ``ibnetdiscover``, or ``ibdiagnet2.lst``.

Format: https://github.com/linux-rdma/rdma-core, infiniband-diags. Each device has a block: a line
that starts with ``SwitchEntry`` or ``Ca``, then one line per port. The first word in the comment of
an adapter is the name of its host.

The cables form a graph of switches and hosts, which is converted to leaves, tiers and rails. A
switch with a cable to a host is a leaf (as in topograph, pkg/providers/ib). A zone of a tier is a
connected component of the switches up to that tier. Leaves that share a host, as on a
rail-optimized fabric, form one zone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.topology.hostlist import natural_key, natural_sort
from parc.compiler.topology.readers.reader_state import (
    HOST_NAME,
    Fragment,
    InputLine,
    LocatedHost,
    Reading,
)

MOST_TIERS = 8
LANE_GBPS = {
    **{"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0},
    **{"EDR": 25.0, "HDR": 50.0, "NDR": 100.0, "XDR": 200.0},
}
"""Rate of one InfiniBand lane in Gbit/s, by generation (InfiniBand Trade Association, roadmap)."""


@dataclass(slots=True)
class FabricGraph:
    """Graph of an InfiniBand fabric: switches, adapters of hosts, and cables between them."""

    switches: dict[str, str] = field(default_factory=dict)
    """Switch id -> name."""
    nics: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Adapter id -> (host, device)."""
    spans: dict[str, Span] = field(default_factory=dict)
    """Position in the file, by id of the switch or adapter."""
    cables: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict)
    """Rate in Gbit/s of each cable, by its two ends (id, port)."""

    def add_cable(self, one: tuple[str, str], other: tuple[str, str], gbps: float) -> None:
        """Add a cable between two ports; a cable that is already in the graph is ignored."""
        # ibnetdiscover lists each cable twice: once at each end.
        if one != other:
            self.cables.setdefault(frozenset((one, other)), gbps)


class _ConnectedSwitches:
    """Disjoint sets of connected switches, as a union-find structure."""

    def __init__(self) -> None:
        self._up: dict[str, str] = {}

    def find(self, name: str) -> str:
        # Path halving keeps the chains short.
        while (up := self._up.get(name, name)) != name:
            self._up[name] = name = self._up.get(up, up)
        return name

    def join(self, one: str, other: str) -> None:
        self._up[self.find(one)] = self.find(other)


def add_hosts_of_graph(graph: FabricGraph, reading: Reading) -> None:
    """Add all hosts of the graph to ``reading``, with their leaf switches and tiers.

    The NICs and the oversubscription are also set if the cables determine them.
    """
    between: dict[str, set[str]] = defaultdict(set)
    leaves: dict[str, set[str]] = defaultdict(set)
    for cable in graph.cables:
        one, other = (end for end, _ in cable)
        for here, there in ((one, other), (other, one)):
            if here in graph.switches and there in graph.switches:
                between[here].add(there)
            elif here in graph.nics and there in graph.switches:
                leaves[graph.nics[here][0]].add(there)
    tier = _distances_from_leaves(set().union(*leaves.values()), between)
    paths = _host_paths(graph, between, leaves, tier)
    first = {host: graph.spans[nic] for nic, (host, _) in reversed(list(graph.nics.items()))}
    for host in natural_sort(first):
        if host not in leaves:
            finding = Finding(f"host {host} has no cable to a switch and is left out", "no cable")
            reading.report("I04", finding, first[host])
            continue
        reading.add_host(LocatedHost(host, paths[host], None, first[host]))
    _set_nics(graph, leaves, reading)
    _set_oversubscription(graph, tier, reading)


def _distances_from_leaves(leaves: set[str], between: dict[str, set[str]]) -> dict[str, int]:
    """Return the tier of every switch: the number of cables to its nearest leaf switch."""
    tier = dict.fromkeys(sorted(leaves), 0)
    edge = list(tier)
    while edge:
        fresh = [there for here in edge for there in sorted(between[here]) if there not in tier]
        for there in fresh:
            tier[there] = min(tier[near] for near in between[there] if near in tier) + 1
        edge = list(dict.fromkeys(fresh))
    return tier


def _host_paths(
    graph: FabricGraph,
    between: dict[str, set[str]],
    leaves: dict[str, set[str]],
    tier: dict[str, int],
) -> dict[str, tuple[str, ...]]:
    """Return, for each host, the names of the zones that contain the host, from leaf to top.

    A zone is a set of connected switches. There is one zone per tier, but a tier is omitted if it
    has as many zones as the tier below.
    """
    zones = _ConnectedSwitches()
    for switches in leaves.values():
        for switch in switches:
            # Rails: the leaves of a host are one zone, because NVLink joins them inside the host.
            zones.join(min(switches), switch)
    home = {host: min(switches) for host, switches in leaves.items()}
    columns: list[dict[str, str]] = []
    for level in range(min(max(tier.values(), default=0) + 1, MOST_TIERS) + 1):
        if level:
            _join_zones_of_tier(level, between, tier, zones)
        here = [switch for switch in tier if tier[switch] == level]
        column = _zone_names(graph, here, home, zones)
        if not columns or len(set(column.values())) < len(set(columns[-1].values())):
            columns.append(column)
    return {host: tuple(column[host] for column in columns) for host in home}


def _join_zones_of_tier(
    level: int, between: dict[str, set[str]], tier: dict[str, int], zones: _ConnectedSwitches
) -> None:
    """Merge the zones that are connected by cables of tier ``level`` or of the tier below.

    A zone is a set of connected switches. The tier of a cable is the higher tier of its two
    switches.
    """
    for switch in (one for one in tier if tier[one] in (level, level - 1)):
        for other in between[switch]:
            if tier.get(other, level + 1) <= tier[switch]:
                zones.join(switch, other)


def _zone_names(
    graph: FabricGraph, here: list[str], home: dict[str, str], zones: _ConnectedSwitches
) -> dict[str, str]:
    """Return, for each host, the name of its zone (a set of connected switches).

    ``here`` contains the switches of one tier. A zone is named after its first switch in ``here``,
    in natural order. A zone without such a switch is named after its first leaf switch.
    """
    names: dict[str, str] = {}
    for switches in (here, sorted(set(home.values()))):
        found: dict[str, list[str]] = defaultdict(list)
        for switch in switches:
            found[zones.find(switch)].append(graph.switches[switch])
        for zone, listed in found.items():
            names.setdefault(zone, min(listed, key=natural_key))
    return {host: names[zones.find(leaf)] for host, leaf in home.items()}


def _set_nics(graph: FabricGraph, leaves: dict[str, set[str]], reading: Reading) -> None:
    """Set the NICs of the node type if all hosts have the same NICs.

    If a host is connected to several leaf switches, a note with the number of rails is added.
    """
    devices: dict[str, dict[str, None]] = defaultdict(dict)
    for host, device in graph.nics.values():
        if host in leaves:
            devices[host][device] = None
    kinds = Counter(tuple(natural_sort(names)) for names in devices.values())
    rates = {gbps for ends, gbps in graph.cables.items() if any(e in graph.nics for e, _ in ends)}
    node: dict[str, object] = {}
    if len(kinds) == 1:
        names = next(iter(kinds))
        node = {"nics": len(names), "nic_names": list(names)}
    elif kinds:
        counts = sorted({len(names) for names in kinds})
        reading.notes.append(
            f"hosts have different NICs ({', '.join(map(str, counts[:6]))} per host); none are set"
        )
    if node and len(rates) == 1 and min(rates) > 0:
        node["nic_speed"] = _int_if_whole(min(rates))
    if node:
        reading.spec.setdefault("cluster", {})["node"] = node
    rails = max((len(switches) for switches in leaves.values()), default=0)
    if rails > 1:
        reading.notes.append(
            f"each host is connected to {rails} leaves (cluster.fabric.rails); leaves that share "
            "hosts are treated as one rack"
        )


def _set_oversubscription(graph: FabricGraph, tier: dict[str, int], reading: Reading) -> None:
    """Set the oversubscription of every tier: the largest ratio of downlink rate to uplink rate."""
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    for cable, gbps in graph.cables.items():
        for here, there in _both_cable_directions(end for end, _ in cable):
            if here not in tier:
                continue
            if there in graph.nics or tier.get(there, -1) < tier[here]:
                # Integers, so that the sums are exact in any order of cables.
                down[here] += int(gbps * 10)
            elif tier.get(there, -1) > tier[here]:
                up[here] += int(gbps * 10)
    depth = len(reading.hosts[0].path) if reading.hosts else 0
    worst = [
        max((down[one] / up[one] for one in tier if tier[one] == level and up[one]), default=1.0)
        for level in range(depth)
    ]
    if any(ratio > 1 for ratio in worst):
        names = {1: ["leaf"], 2: ["leaf", "spine"], 3: ["leaf", "pod", "spine"]}.get(depth)
        names = names or ["leaf", *(f"tier{number}" for number in range(2, depth + 1))]
        levels = zip(names, worst, strict=True)
        rows = [
            {"name": name, "oversubscription": _int_if_whole(max(r, 1.0))} for name, r in levels
        ]
        reading.spec.setdefault("cluster", {})["levels"] = rows


def _both_cable_directions(ends: Iterable[str]) -> tuple[tuple[str, str], tuple[str, str]]:
    one, other = ends
    return (one, other), (other, one)


def _int_if_whole(number: float) -> float | int:
    short = round(number, 3)
    return int(short) if short == int(short) else short


_DEVICE = re.compile(r'(Switch|Ca|Rt)\s+[0-9]+\s+"([^"]{1,40})"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(r'\[([0-9]{1,4})\](?:\([0-9a-fx]+\))?\s+"([^"]{1,40})"\[([0-9]{1,4})\]')
_RATE = re.compile(r"\b([0-9]{1,2})x([A-Z]DR(?:10)?)\b")
_IGNORED_LINE = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid|DR path|$)")
_CABLE_END = re.compile(
    r"\{ (SW|CA) Ports:\w+ SystemGUID:\w+ NodeGUID:(\w{1,20}) "
    r".*?\{([^}]*)\} LID:\w+ PN:(\w{1,4}) \}"
)
_SPEED = re.compile(r"\bPHY=([0-9]{1,2})x\b.*\bSPD=([0-9]{1,4}(?:\.[0-9]+)?)\b")
LONGEST_LINE = 2000


def read_ibnetdiscover(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read hosts, racks, tiers, NICs and oversubscription from the cables of an InfiniBand fabric.

    Racks come from leaf switches, tiers from the switches above the leaves.
    """
    reading = Reading(text, name, sink)
    graph = FabricGraph()
    device = ""
    for line in reading.lines():
        if len(line.text) > LONGEST_LINE:
            finding = Finding(
                f"the line has {len(line.text)} characters; the limit is {LONGEST_LINE}",
                "line too long",
            )
            reading.report_error("I06", finding, reading.span(line.number))
        elif line.text.startswith("{"):
            _read_cable(line, graph, reading)
        else:
            device = _read_block_line(line, device, graph, reading)
    _check_cable_ends(graph, reading)
    if reading.is_valid:
        add_hosts_of_graph(graph, reading)
    if not reading.hosts and reading.is_valid:
        finding = Finding(
            "no host is connected to a switch in this file", help="run ibnetdiscover as root"
        )
        reading.report_error("I02", finding, reading.span())
    return reading.fragment()


def _read_block_line(line: InputLine, device: str, graph: FabricGraph, reading: Reading) -> str:
    """Add a line of ibnetdiscover to the graph, and return the device of the next line.

    ``device`` is the device that the previous lines describe. The line can start another device.
    """
    text = line.text.strip()
    if text.startswith("#") or _IGNORED_LINE.match(text):
        return device
    found = _DEVICE.match(text)
    if found:
        span = reading.span(line.number, line.text.index(found[2]) + 1, len(found[2]))
        if found[1] == "Switch":
            graph.switches[found[2]] = switch_name_from_comment(found[3] or "", found[2])
        elif found[1] == "Ca":
            _add_adapter(found[2], found[3] or "", graph)
        graph.spans.setdefault(found[2], span)
        return found[2]
    port = _PORT.match(text)
    if port is None or not device:
        problem = "is not a device or a port" if device else "comes before the first device"
        finding = Finding(
            f"this line {problem}",
            help='example of a port line: [1] "H-guid"[1] # "host hca" 4xNDR',
        )
        reading.report_error("I01", finding, reading.span(line.number))
        return device
    rate = _RATE.search(text)
    # 0.0 if the comment has no rate or an unknown one; the cable is still used.
    gbps = int(rate[1]) * LANE_GBPS.get(rate[2], 0.0) if rate else 0.0
    graph.add_cable((device, port[1]), (port[2], port[3]), gbps)
    graph.spans.setdefault(port[2], reading.span(line.number, line.text.index(port[2]) + 1))
    return device


def switch_name_from_comment(comment: str, guid: str) -> str:
    """Return the name of a switch from its comment, such as leaf1 for ``MF0;leaf1:MQM9700/U1``.

    If the comment has another form, the whole comment is the name. If the comment is empty, the
    GUID is the name.
    """
    name = comment.partition(";")[2].partition(":")[0] or comment
    return name.strip() or guid


def _add_adapter(guid: str, comment: str, graph: FabricGraph) -> None:
    """Add the network adapter of a host to the graph.

    Adapters of switches (aggregation nodes) are ignored.
    """
    host, _, device = comment.partition(" ")
    if device and HOST_NAME.fullmatch(host) and "aggregation" not in comment.lower():
        graph.nics[guid] = (host, device.strip()[:40])


def _check_cable_ends(graph: FabricGraph, reading: Reading) -> None:
    """Report cables that lead to a switch without an entry in the file (I03)."""
    # ibnetdiscover starts the ids of switches with S-, and of host adapters with H-.
    known = graph.switches.keys()
    lost = {end for cable in graph.cables for end, _ in cable if end.startswith("S-")} - known
    for end in sorted(lost):
        finding = Finding(
            f"a cable leads to switch {end}, but the file has no block for this switch",
            "switch without a block",
        )
        reading.report_error("I03", finding, graph.spans.get(end, reading.span()))


def _read_cable(line: InputLine, graph: FabricGraph, reading: Reading) -> None:
    """Add a line of ibdiagnet2.lst to the graph: a cable, its rate and the devices at its ends."""
    ends = list(_CABLE_END.finditer(line.text))
    speed = _SPEED.search(line.text)
    if len(ends) != 2 or speed is None:
        finding = Finding(
            "this line does not describe a cable",
            help="example of a cable line: { SW ... } { CA ... } PHY=4x LOG=ACT SPD=100",
        )
        reading.report_error("I01", finding, reading.span(line.number, 1, len(line.text)))
        return
    for end in ends:
        guid = end[2]
        graph.spans.setdefault(guid, reading.span(line.number, end.start(2) + 1, len(guid)))
        if end[1] == "SW":
            graph.switches[guid] = switch_name_from_comment(end[3], guid)
        else:
            _add_adapter(guid, end[3], graph)
    one, other = ((end[2], end[4]) for end in ends)
    graph.add_cable(one, other, int(speed[1]) * float(speed[2]))
