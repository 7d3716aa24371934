"""Cluster of the spec and the levels of its network.

Resolve ``cluster:`` to the hosts that a job may use, per rack and NVLink domain.

Resolve ``cluster.levels`` and the switches above racks to tiers of the network.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from parc.compiler.catalog.library import Library, look_up
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Cluster, Fabric, Host, Level, NodeType, Rack
from parc.compiler.resolve.resolve_hardware import resolve_hardware
from parc.compiler.resolve.resolve_hosts import Hosts, WrittenRack, resolve_hosts
from parc.compiler.resolve.resolve_topology import check_gpus_per_host, resolve_topology
from parc.compiler.spec.cluster_spec import ClusterSpec, LevelSpec
from parc.compiler.spec.reading.tree_builder import join
from parc.compiler.topology.tree import domain_names

AT = "cluster"


def resolve_cluster(spec: str | ClusterSpec, library: Library, sink: Sink) -> Cluster | None:
    """Return the cluster, racks and hosts in the order of the spec; None after an error.

    Racks are split into NVLink domains before spare and unavailable hosts are removed, so that a
    drained host does not move other hosts to another domain.
    """
    written = _complete(spec, library, sink)
    facts = resolve_topology(written, library, sink) if written else None
    if facts is None:
        if written is not None:
            resolve_hardware(written, library, sink, AT)
        return None
    complete = facts.spec
    hosts = resolve_hosts(complete, sink, AT)
    hardware = resolve_hardware(complete, library, sink, AT)
    if hosts is None or hardware is None:
        return None
    node, fabric = hardware.node, hardware.fabric
    check_gpus_per_host(facts, node, sink)
    all_racks = [_with_domains(rack, node) for rack in hosts.racks]
    _check_sizes(hosts.racks, all_racks, node, sink)
    _check_owners(hosts.racks, all_racks, sink)
    upper = resolve_levels(complete, hosts.racks, fabric, sink)
    members = [host for rack in all_racks for host in rack.hosts]
    racks = tuple(kept for rack in all_racks if (kept := _usable(rack, hosts)).hosts)
    _check_remaining(hosts, racks, node, sink)
    if sink.failed():
        return None
    place = {host.name: host for host in members}
    return Cluster(
        gpu=hardware.gpu,
        generation=hardware.generation,
        node=node,
        fabric=with_leaf(complete, fabric),
        racks=racks,
        spare=tuple(place[name] for name in hosts.spare),
        unavailable=tuple(hosts.unavailable),
        named=hosts.named,
        upper=upper,
    )


def _complete(spec: str | ClusterSpec, library: Library, sink: Sink) -> ClusterSpec | None:
    """Return the spec over the catalog cluster that it names; None after K01."""
    name = spec if isinstance(spec, str) else spec.base
    if name is None:
        return spec if isinstance(spec, ClusterSpec) else None
    entry = look_up("clusters", name, library, sink, AT if isinstance(spec, str) else f"{AT}.base")
    if entry is None:
        return None
    base = ClusterSpec.model_validate_json(json.dumps(entry.facts))
    return base if isinstance(spec, str) else _changed(base, spec)


def _changed(base: ClusterSpec, changes: ClusterSpec) -> ClusterSpec:
    """Return ``base`` with ``changes``; racks replace the nodes of the base, and the reverse."""
    update = {
        key: getattr(changes, key)
        for key in sorted(changes.model_fields_set - {"base"})
        if getattr(changes, key) is not None
    }
    if "racks" in update or "topology" in update:
        update = {"nodes": None, "nodes_per_rack": None, "racks": None, **update}
    elif "nodes" in update:
        update = {"racks": None, **update}
    return base.model_copy(update=update)


def _with_domains(rack: WrittenRack, node: NodeType) -> Rack:
    """Return a rack with the NVLink domain of each host; hosts of one domain are adjacent."""
    if rack.nvlink_domain is not None:
        domains = [rack.nvlink_domain] * len(rack.hosts)
    elif rack.domains:
        domains = [rack.domains.get(name, name) for name in rack.hosts]
    else:
        domains = domain_names(rack.name, rack.hosts, node.nvlink_domain // node.gpus)
    pairs = list(zip(rack.hosts, domains, strict=True))
    if rack.domains:
        place = {domain: index for index, domain in enumerate(dict.fromkeys(domains))}
        pairs.sort(key=lambda pair: place[pair[1]])  # stable: keeps the order inside a domain
    hosts = (Host(name, rack.name, domain, rack.above) for name, domain in pairs)
    return Rack(rack.name, tuple(hosts))


def _check_sizes(written: list[WrittenRack], racks: list[Rack], node: NodeType, sink: Sink) -> None:
    """Report H07 if a named NVLink domain has more GPUs than the node type can connect."""
    most = max(node.nvlink_domain // node.gpus, 1)
    size = Counter(host.nvlink_domain for rack in racks for host in rack.hosts)
    named = [
        (domain, path)
        for rack in written
        for domain, path in _named_domains(rack)
        if size[domain] > most
    ]
    for domain, path in named:
        hosts = size[domain]
        finding = Finding(
            message=f"NVLink domain {domain} has {hosts} hosts of {node.gpus} GPUs",
            label=f"{hosts} x {node.gpus} = {hosts * node.gpus} > {most * node.gpus}",
            help=f"a domain of {node.name} has at most {most} host{'s' if most > 1 else ''}",
            causes=(Cause(f"{AT}.node", f"at most {node.nvlink_domain} GPUs per domain"),),
        )
        sink.report("H07", finding, at=path)


def _named_domains(rack: WrittenRack) -> list[tuple[str, str]]:
    """Return (domain, spec path) per NVLink domain that a rack names."""
    if rack.nvlink_domain is not None:
        return [(rack.nvlink_domain, f"{rack.path}.nvlink_domain")]
    names = dict.fromkeys(rack.domains.values())
    return [(name, join(f"{rack.path}.nvlink_domains", name)) for name in names]


def _check_owners(written: list[WrittenRack], racks: list[Rack], sink: Sink) -> None:
    """Report H08 if a derived NVLink domain has the same name as one in another rack."""
    owners: dict[str, WrittenRack] = {}
    for rack, resolved in zip(written, racks, strict=True):
        for domain in sorted({host.nvlink_domain for host in resolved.hosts}):
            owner = owners.setdefault(domain, rack)
            if owner is rack or (_named(owner, domain) and _named(rack, domain)):
                continue
            finding = Finding(
                message=f"racks {owner.name} and {rack.name} both have an NVLink domain {domain}",
                label="its hosts would count as one domain",
                causes=(Cause(f"{owner.path}.name", "the other rack"),),
            )
            sink.report("H08", finding, at=f"{rack.path}.name")


def _named(rack: WrittenRack, domain: str) -> bool:
    return domain == rack.nvlink_domain or domain in rack.domains.values()


def _usable(rack: Rack, hosts: Hosts) -> Rack:
    kept = tuple(
        host
        for host in rack.hosts
        if host.name not in hosts.spare and host.name not in hosts.unavailable
    )
    return Rack(rack.name, kept)


def _check_remaining(hosts: Hosts, racks: tuple[Rack, ...], node: NodeType, sink: Sink) -> None:
    """Report H06 if no host remains, H07 if several remain and have no NIC."""
    left = sum(len(rack.hosts) for rack in racks)
    if not left and not sink.failed():  # an invalid list would be the cause
        excluded = f"{len(hosts.spare)} spare, {len(hosts.unavailable)} unavailable"
        finding = Finding("no host is left for the job", f"{len(hosts.paths)} hosts, {excluded}")
        sink.report("H06", finding, at=f"{AT}.racks" if hosts.named else f"{AT}.nodes")
    if left > 1 and not node.nics:
        finding = Finding(f"{left} hosts without NICs cannot communicate", fix=f"{AT}.node.nics: 8")
        sink.report("H07", finding, at=f"{AT}.node.nics")


LEVELS = "cluster.levels"
NAMES = {1: ("spine",), 2: ("pod", "spine"), 3: ("pod", "spine", "core")}
"""Number of tiers above the leaf -> their names; if there are more: tier2, tier3, ..."""


def resolve_levels(
    spec: ClusterSpec, racks: list[WrittenRack], fabric: Fabric, sink: Sink
) -> tuple[Level, ...]:
    """Return the switch tiers above the leaf, nearest first.

    There is one per switch that the racks list in ``above``. Reports H10 if the racks list
    different numbers of switches, or if ``levels`` does not have one level more than that.
    """
    depth = len(racks[0].above) if racks else 0
    for rack in racks:
        if len(rack.above) != depth:
            finding = Finding(
                f"switches above rack {rack.name}: {len(rack.above)}, {racks[0].name}: {depth}",
                label=f"{len(rack.above)} != {depth}",
                help="list as many switches above every rack; repeat one that spans two tiers",
                causes=(Cause(f"{racks[0].path}.above", "the first rack"),),
            )
            sink.report("H10", finding, at=f"{rack.path}.above")
            return ()
    written = spec.levels or ()
    if written and len(written) != depth + 1:
        finding = Finding(
            f"{len(written)} levels, but racks list {depth} switches above the leaf",
            label=f"{len(written)} != 1 + {depth}",
            help="the leaf is the first level; racks[].above lists one switch per level above it",
        )
        sink.report("H10", finding, at=LEVELS)
        return ()
    names = NAMES.get(depth) or tuple(f"tier{tier}" for tier in range(2, depth + 2))
    levels = written[1:] or tuple(LevelSpec(name=name) for name in names[:depth])
    return tuple(
        Level(level.name, level.oversubscription or 1.0, level.latency or fabric.latency_seconds)
        for level in levels
    )


def with_leaf(spec: ClusterSpec, fabric: Fabric) -> Fabric:
    """Return the fabric with oversubscription and latency of ``levels[0]``, the leaf level."""
    leaf = spec.levels[0] if spec.levels else None
    if leaf is None:
        return fabric
    return replace(
        fabric,
        oversubscription=leaf.oversubscription or fabric.oversubscription,
        latency_seconds=leaf.latency or fabric.latency_seconds,
    )
