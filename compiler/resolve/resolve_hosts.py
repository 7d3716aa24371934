"""``racks:`` or ``nodes:`` to hosts by rack: names expanded, each one once, spare ones apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.resolve.expand_hosts import (
    are,
    near_hosts,
    read_hosts,
    report_too_many,
    some_hosts,
    unique_hosts,
)
from parc.compiler.spec.cluster_spec import ClusterSpec, RackSpec
from parc.compiler.spec.reading.tree_builder import join
from parc.compiler.topology.hostlist import MOST_HOSTS

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class WrittenRack:
    """One rack as the spec has it, spare and unavailable hosts still in their places."""

    name: str
    hosts: list[str]
    nvlink_domain: str | None
    path: str
    domains: dict[str, str] = field(default_factory=dict)
    """Host -> NVLink domain, where the rack names several."""
    above: tuple[str, ...] = ()
    """Switches above the leaf, nearest first."""


@dataclass(slots=True)
class Hosts:
    """All hosts that the spec names."""

    racks: list[WrittenRack]
    named: bool
    """False where the names are placeholders."""
    whole: bool = True
    """False where a host list could not be read, so that a host may be missing."""
    where: dict[str, str] = field(default_factory=dict)
    """Host -> spec path that mentions it first; empty for placeholders."""
    spare: dict[str, str] = field(default_factory=dict)
    """Spare host -> spec path, in the order of the spec."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Drained host -> spec path, in the order of the spec."""


def resolve_hosts(spec: ClusterSpec, sink: Sink, at: str) -> Hosts | None:
    """Hosts of the cluster at path ``at``, in the order written; None after a diagnostic."""
    if not _one_form(spec, sink, at):
        return None
    hosts = _placeholders(spec, sink, at) if spec.nodes else _written(spec, sink, at)
    if hosts is None:
        return None
    hosts.unavailable = _kept_apart(spec.unavailable, hosts, sink, f"{at}.unavailable")
    hosts.spare = _kept_apart(spec.spare, hosts, sink, f"{at}.spare")
    both = [name for name in hosts.spare if name in hosts.unavailable]
    if both:
        cause = Cause(hosts.unavailable[both[0]], "unavailable here")
        message = f"{some_hosts(both)} {are(both)} both spare and unavailable"
        sink.report("H02", Finding(message, causes=(cause,)), at=hosts.spare[both[0]])
    return hosts


def _one_form(spec: ClusterSpec, sink: Sink, at: str) -> bool:
    """Exactly one of nodes and racks (topology has become racks); nodes_per_rack with nodes."""
    if (spec.nodes is None) == (spec.racks is None):
        message = "both nodes and racks" if spec.nodes else "neither nodes nor racks nor topology"
        fix = f"{at}.nodes: 4, or {at}.racks: [{{name: r01, nodes: 'r01n[01-16]'}}]"
        path = f"{at}.nodes" if spec.nodes else at
        finding = Finding(f"the cluster has {message}", "exactly one of them", fix=fix)
        sink.report("H04", finding, at=path, key=True)
        return False
    if spec.racks is not None and spec.nodes_per_rack is not None:
        finding = Finding("nodes_per_rack goes with nodes", "racks list their hosts themselves")
        sink.report("H04", finding, at=f"{at}.nodes_per_rack", key=True)
        return False
    return True


def _placeholders(spec: ClusterSpec, sink: Sink, at: str) -> Hosts | None:
    """``nodes: 40`` -> node0001 ... node0040 in racks of nodes_per_rack."""
    nodes = spec.nodes or 0
    if nodes > MOST_HOSTS:
        report_too_many(nodes, sink, f"{at}.nodes")
        return None
    width = max(4, len(str(nodes)))
    names = [f"node{number:0{width}d}" for number in range(1, nodes + 1)]
    size = min(spec.nodes_per_rack or nodes, nodes)
    groups = [names[start : start + size] for start in range(0, nodes, size)]
    width = max(2, len(str(len(groups))))
    racks = [
        WrittenRack(f"rack{number:0{width}d}", group, None, f"{at}.nodes")
        for number, group in enumerate(groups, start=1)
    ]
    return Hosts(racks, named=False, where=dict.fromkeys(names, f"{at}.nodes"))


def _written(spec: ClusterSpec, sink: Sink, at: str) -> Hosts | None:
    hosts = Hosts([], named=True)
    names: dict[str, str] = {}
    for index, rack in enumerate(spec.racks or ()):
        path = f"{at}.racks[{index}]"
        _check_labels(rack, names, sink, path)
        read = read_hosts(rack.nodes, sink, f"{path}.nodes")
        hosts.whole &= len(read) == (1 if isinstance(rack.nodes, str) else len(rack.nodes))
        found = unique_hosts(read, hosts.where, sink)
        domains = _domains(rack, found, sink, path)
        above = rack.above or ()
        hosts.racks.append(WrittenRack(rack.name, found, rack.nvlink_domain, path, domains, above))
        if len(hosts.where) > MOST_HOSTS:
            report_too_many(len(hosts.where), sink, f"{path}.nodes")
            return None
    return hosts


def _domains(rack: RackSpec, hosts: list[str], sink: Sink, path: str) -> dict[str, str]:
    """Host -> its NVLink domain; H08 for a bad name, H02 and H03 for a host twice or elsewhere."""
    found: dict[str, str] = {}
    if rack.nvlink_domains is None:
        return found
    if rack.nvlink_domain is not None:
        finding = Finding("a rack has one nvlink_domain, or several nvlink_domains, not both")
        sink.report("H08", finding, at=f"{path}.nvlink_domains", key=True)
    known = set(hosts)
    where: dict[str, str] = {}
    for domain, lists in rack.nvlink_domains.items():
        at = join(f"{path}.nvlink_domains", domain)
        _check_label("nvlink_domain", domain, sink, at)
        members = unique_hosts(read_hosts(lists, sink, at), where, sink)
        foreign = [name for name in members if name not in known]
        if foreign:
            message = (
                f"{some_hosts(foreign)} {are(foreign)} not among the hosts of rack {rack.name}"
            )
            sink.report("H03", Finding(message, "the rack has no such host"), at=at)
        found |= dict.fromkeys(members, domain)
    return found


def _check_label(key: str, label: str, sink: Sink, at: str) -> None:
    if not _LABEL.fullmatch(label):
        legal = "letters, digits, dot, dash and underscore, at most 64, a letter or digit first"
        finding = Finding(f"{label[:64]!r} cannot be a {key}", help=legal)
        sink.report("H08", finding, at=at)


def _check_labels(rack: RackSpec, names: dict[str, str], sink: Sink, path: str) -> None:
    """Rack and domain names end up in tables and scripts: plain words, a rack name once."""
    labels = (("name", rack.name), ("nvlink_domain", rack.nvlink_domain))
    for key, label in labels:
        if label is not None:
            _check_label(key, label, sink, f"{path}.{key}")
    for index, switch in enumerate(rack.above or ()):
        _check_label("switch", switch, sink, f"{path}.above[{index}]")
    if rack.name in names:
        cause = Cause(names[rack.name], "first here")
        finding = Finding(f"two racks are called {rack.name[:64]!r}", causes=(cause,))
        sink.report("H08", finding, at=f"{path}.name")
    names.setdefault(rack.name, f"{path}.name")


def _kept_apart(lists: str | tuple[str, ...], hosts: Hosts, sink: Sink, at: str) -> dict[str, str]:
    """Host -> path for the spare or unavailable ones; H03 where the cluster lacks one."""
    found: dict[str, str] = {}
    unique_hosts(read_hosts(lists, sink, at) if lists else (), found, sink)
    unknown: dict[str, list[str]] = {}
    for name, path in found.items():
        if name not in hosts.where and hosts.whole:
            unknown.setdefault(path, []).append(name)
    for path, names in unknown.items():
        near = near_hosts(names[0], hosts.where)
        finding = Finding(
            message=f"{some_hosts(names)} {are(names)} not among the {len(hosts.where)} hosts",
            label="the cluster has no such host",
            help=f"did you mean {' or '.join(near)}?" if near else "",
            fix=f"{path}: {near[0]}" if near and len(names) == 1 else "",
        )
        sink.report("H03", finding, at=path)
    return {name: path for name, path in found.items() if name in hosts.where}
