"""InfiniBand fabric as a graph of ports, converted to leaves, tiers and rails.

A switch with a cable to a host is a leaf (as in topograph, pkg/providers/ib). A zone of a tier is a
connected component of the switches up to that tier. Leaves that share a host, as on a
rail-optimised fabric, are one zone from the start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Finding, Span
from parc.compiler.topology.hostlist import natural_key, natural_sort
from parc.compiler.topology.readers.fragment import Located
from parc.compiler.topology.readers.reading import Reading

MOST_TIERS = 8
LANE_GBPS = {
    **{"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0},
    **{"EDR": 25.0, "HDR": 50.0, "NDR": 100.0, "XDR": 200.0},
}
"""Gigabits per second of one lane (InfiniBand Trade Association, roadmap)."""


@dataclass(slots=True)
class Graph:
    """Switches, adapters of hosts and the cables between them, without duplicates."""

    switches: dict[str, str] = field(default_factory=dict)
    """Switch id -> name."""
    nics: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Adapter id -> (host, device)."""
    spans: dict[str, Span] = field(default_factory=dict)
    """Position of the description of a switch or an adapter."""
    cables: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict)
    """Pair of (id, port) -> gigabits per second."""

    def join(self, one: tuple[str, str], other: tuple[str, str], gbps: float) -> None:
        """Add a cable. Files list a cable at both of its ends, so it may be added twice."""
        if one != other:
            self.cables.setdefault(frozenset((one, other)), gbps)


class _Zones:
    """Disjoint sets of switches (union-find); the representative is arbitrary."""

    def __init__(self) -> None:
        self._up: dict[str, str] = {}

    def find(self, name: str) -> str:
        while (up := self._up.get(name, name)) != name:
            self._up[name] = name = self._up.get(up, up)
        return name

    def join(self, one: str, other: str) -> None:
        self._up[self.find(one)] = self.find(other)


def place_hosts(graph: Graph, reading: Reading) -> None:
    """Add all hosts to ``reading`` with leaf and tiers, and notes on NICs, rails and uplinks."""
    between: dict[str, set[str]] = defaultdict(set)
    leaves: dict[str, set[str]] = defaultdict(set)
    for cable in graph.cables:
        one, other = (end for end, _ in cable)
        for here, there in ((one, other), (other, one)):
            if here in graph.switches and there in graph.switches:
                between[here].add(there)
            elif here in graph.nics and there in graph.switches:
                leaves[graph.nics[here][0]].add(there)
    tier = _tiers(set().union(*leaves.values()), between)
    paths = _paths(graph, between, leaves, tier)
    first = {host: graph.spans[nic] for nic, (host, _) in reversed(list(graph.nics.items()))}
    for host in natural_sort(first):
        if host not in leaves:
            finding = Finding(f"host {host} has no cable to a switch and is left out", "no cable")
            reading.say("I04", finding, first[host])
            continue
        reading.place(Located(host, paths[host], None, first[host]))
    _note_nics(graph, leaves, reading)
    _note_uplinks(graph, tier, reading)


def _tiers(leaves: set[str], between: dict[str, set[str]]) -> dict[str, int]:
    """Return switch -> distance from the nearest leaf (breadth-first search)."""
    tier = dict.fromkeys(sorted(leaves), 0)
    edge = list(tier)
    while edge:
        fresh = [there for here in edge for there in sorted(between[here]) if there not in tier]
        for there in fresh:
            tier[there] = min(tier[near] for near in between[there] if near in tier) + 1
        edge = list(dict.fromkeys(fresh))
    return tier


def _paths(
    graph: Graph,
    between: dict[str, set[str]],
    leaves: dict[str, set[str]],
    tier: dict[str, int],
) -> dict[str, tuple[str, ...]]:
    """Return host -> name of its zone in every tier; tiers that join no zones are left out."""
    zones = _Zones()
    for switches in leaves.values():
        for switch in switches:
            # Rails: the leaves of a host are one zone, because NVLink joins them inside the host.
            zones.join(min(switches), switch)
    home = {host: min(switches) for host, switches in leaves.items()}
    columns: list[dict[str, str]] = []
    for level in range(min(max(tier.values(), default=0) + 1, MOST_TIERS) + 1):
        if level:
            _join_tier(level, between, tier, zones)
        here = [switch for switch in tier if tier[switch] == level]
        column = _zone_names(graph, here, home, zones)
        if not columns or len(set(column.values())) < len(set(columns[-1].values())):
            columns.append(column)
    return {host: tuple(column[host] for column in columns) for host in home}


def _join_tier(
    level: int, between: dict[str, set[str]], tier: dict[str, int], zones: _Zones
) -> None:
    """Join the zones below each switch of ``level``, and connected switches of one tier below."""
    for switch in (one for one in tier if tier[one] in (level, level - 1)):
        for other in between[switch]:
            if tier.get(other, level + 1) <= tier[switch]:
                zones.join(switch, other)


def _zone_names(
    graph: Graph, here: list[str], home: dict[str, str], zones: _Zones
) -> dict[str, str]:
    """Return host -> first name of the switches ``here`` in its zone, or else of its leaves."""
    names: dict[str, str] = {}
    for switches in (here, sorted(set(home.values()))):
        found: dict[str, list[str]] = defaultdict(list)
        for switch in switches:
            found[zones.find(switch)].append(graph.switches[switch])
        for zone, listed in found.items():
            names.setdefault(zone, min(listed, key=natural_key))
    return {host: names[zones.find(leaf)] for host, leaf in home.items()}


def _note_nics(graph: Graph, leaves: dict[str, set[str]], reading: Reading) -> None:
    """Set the NICs of the node type if all hosts have the same; note the number of rails."""
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
            f"hosts have different NICs: {', '.join(map(str, counts[:6]))} per host"
        )
    if node and len(rates) == 1 and min(rates) > 0:
        node["nic_speed"] = _plain(min(rates))
    if node:
        reading.spec.setdefault("cluster", {})["node"] = node
    rails = max((len(switches) for switches in leaves.values()), default=0)
    if rails > 1:
        reading.notes.append(
            f"each host is connected to {rails} leaves (cluster.fabric.rails); leaves that share "
            "hosts are treated as one rack"
        )


def _note_uplinks(graph: Graph, tier: dict[str, int], reading: Reading) -> None:
    """Set the oversubscription of every tier: the largest ratio of its switches."""
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    for cable, gbps in graph.cables.items():
        for here, there in _both(end for end, _ in cable):
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
        rows = [{"name": name, "oversubscription": _plain(max(r, 1.0))} for name, r in levels]
        reading.spec.setdefault("cluster", {})["levels"] = rows


def _both(ends: Iterable[str]) -> tuple[tuple[str, str], tuple[str, str]]:
    one, other = ends
    return (one, other), (other, one)


def _plain(number: float) -> float | int:
    short = round(number, 3)
    return int(short) if short == int(short) else short
