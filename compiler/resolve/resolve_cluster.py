"""Resolve ``cluster:`` of a spec to hosts by rack and NVLink domain, and to tiers of switches."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from parc.compiler.catalog.library import Library, look_up_entry
from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.ir import Cluster, Fabric, Host, NodeType, Rack, SwitchTier
from parc.compiler.ir.cluster import Reliability, Storage
from parc.compiler.resolve.resolve_hardware import resolve_hardware
from parc.compiler.resolve.resolve_hosts import SpecHosts, SpecRack, resolve_hosts
from parc.compiler.resolve.resolve_topology import check_gpus_per_host, resolve_topology
from parc.compiler.spec.cluster_spec import ClusterSpec, FailuresSpec, LevelSpec
from parc.compiler.spec.reading.tree_builder import join_path
from parc.compiler.topology.tree import nvlink_domain_names

AT = "cluster"


def resolve_cluster(spec: str | ClusterSpec, library: Library, sink: Sink) -> Cluster | None:
    """Return the cluster with its racks and hosts in the order of the spec; None after an error.

    Hosts are assigned to NVLink domains before spare and unavailable hosts are removed, so that
    draining a host does not move other hosts to another domain.
    """
    written = _with_catalog_base(spec, library, sink)
    facts = resolve_topology(written, library, sink) if written else None
    if facts is None:
        if written is not None:
            # Report errors of the hardware too, so that one compile shows all errors.
            resolve_hardware(written, library, sink, AT)
        return None
    complete = facts.spec
    hosts = resolve_hosts(complete, sink, AT)
    hardware = resolve_hardware(complete, library, sink, AT)
    if hosts is None or hardware is None:
        return None
    node, fabric = hardware.node, hardware.fabric
    check_gpus_per_host(facts, node, sink)
    all_racks = [_assign_nvlink_domains(rack, node) for rack in hosts.racks]
    _check_domain_sizes(hosts.racks, all_racks, node, sink)
    _check_domain_names_unique(hosts.racks, all_racks, sink)
    upper = resolve_levels(complete, hosts.racks, fabric, sink)
    members = [host for rack in all_racks for host in rack.hosts]
    racks = tuple(
        kept for rack in all_racks if (kept := _without_excluded_hosts(rack, hosts)).hosts
    )
    _check_remaining_hosts(hosts, racks, node, sink)
    if sink.failed():
        return None
    place = {host.name: host for host in members}
    return Cluster(
        gpu=hardware.gpu,
        generation=hardware.generation,
        node=node,
        fabric=apply_leaf_level(complete, fabric),
        racks=racks,
        spare=tuple(place[name] for name in hosts.spare),
        unavailable=tuple(hosts.unavailable),
        named=hosts.named,
        upper=upper,
        price_per_gpu_hour=complete.price_per_gpu_hour,
        pue=complete.pue,
        reliability=_resolve_reliability(complete.failures),
        storage=Storage(complete.storage.write_gb_per_s, complete.storage.read_gb_per_s),
        wired_hosts=tuple(Counter(host.switch_path for host in members).items()),
    )


def _resolve_reliability(spec: FailuresSpec) -> Reliability:
    return Reliability(
        gpu_mtbf_seconds=spec.gpu_mtbf,
        detection_seconds=spec.detection,
        restart_seconds=spec.restart,
        repair_seconds=spec.repair,
        host_share=spec.host_share,
    )


def _with_catalog_base(spec: str | ClusterSpec, library: Library, sink: Sink) -> ClusterSpec | None:
    """Return the cluster section; keys that ``spec`` does not set come from the catalog cluster.

    None after an error: the catalog has no cluster of the name that ``spec`` gives (K01).
    """
    name = spec if isinstance(spec, str) else spec.base
    if name is None:
        return spec if isinstance(spec, ClusterSpec) else None
    entry = look_up_entry(
        "clusters", name, library, sink, AT if isinstance(spec, str) else f"{AT}.base"
    )
    if entry is None:
        return None
    base = ClusterSpec.model_validate_json(json.dumps(entry.facts))
    return base if isinstance(spec, str) else _apply_cluster_changes(base, spec)


def _apply_cluster_changes(base: ClusterSpec, changes: ClusterSpec) -> ClusterSpec:
    """Return the cluster ``base`` with the keys that ``changes`` sets.

    A cluster gives its hosts in exactly one form: nodes, racks or topology. If ``changes`` uses
    another form than ``base``, the hosts of ``base`` are dropped.
    """
    update = {
        key: getattr(changes, key)
        for key in sorted(changes.model_fields_set - {"base"})
        if getattr(changes, key) is not None
    }
    # The base may list hosts in another form, and a cluster has exactly one form (H04).
    if "racks" in update or "topology" in update:
        update = {"nodes": None, "nodes_per_rack": None, "racks": None, **update}
    elif "nodes" in update:
        update = {"racks": None, **update}
    return base.model_copy(update=update)


def _assign_nvlink_domains(rack: SpecRack, node: NodeType) -> Rack:
    """Return ``rack`` as a ``Rack`` in which each host has its NVLink domain.

    If the spec assigns hosts to domains one by one, the hosts are sorted by domain.
    """
    if rack.nvlink_domain is not None:
        domains = [rack.nvlink_domain] * len(rack.hosts)
    elif rack.domains:
        domains = [rack.domains.get(name, name) for name in rack.hosts]
    else:
        domains = nvlink_domain_names(rack.name, rack.hosts, node.nvlink_domain // node.gpus)
    pairs = list(zip(rack.hosts, domains, strict=True))
    if rack.domains:
        place = {domain: index for index, domain in enumerate(dict.fromkeys(domains))}
        pairs.sort(key=lambda pair: place[pair[1]])  # stable: keeps the order inside a domain
    hosts = (Host(name, rack.name, domain, rack.above) for name, domain in pairs)
    return Rack(rack.name, tuple(hosts))


def _check_domain_sizes(
    written: list[SpecRack], racks: list[Rack], node: NodeType, sink: Sink
) -> None:
    """Report NVLink domains of the spec that are larger than the node type allows (H07)."""
    # A domain inside a host still counts as one host.
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
            message=f"NVLink domain {domain} has {hosts} hosts with {node.gpus} GPUs each",
            label=f"{hosts} x {node.gpus} = {hosts * node.gpus} GPUs, "
            f"must be at most {most * node.gpus}",
            help=f"{node.name}: at most {most} host{'s' if most > 1 else ''} per NVLink domain",
            causes=(
                Cause(
                    f"{AT}.node",
                    f"the node type allows at most {node.nvlink_domain} GPUs per domain",
                ),
            ),
        )
        sink.report("H07", finding, at=path)


def _named_domains(rack: SpecRack) -> list[tuple[str, str]]:
    """Return (name, spec path) of each NVLink domain that the spec names in ``rack``."""
    if rack.nvlink_domain is not None:
        return [(rack.nvlink_domain, f"{rack.path}.nvlink_domain")]
    names = dict.fromkeys(rack.domains.values())
    return [(name, join_path(f"{rack.path}.nvlink_domains", name)) for name in names]


def _check_domain_names_unique(written: list[SpecRack], racks: list[Rack], sink: Sink) -> None:
    """Report two racks that have an NVLink domain of the same name (H08).

    A spec can name the same domain in two racks on purpose. The name is therefore reported only if
    PARC, and not the spec, chose the name in at least one of the racks.
    """
    owners: dict[str, SpecRack] = {}
    for rack, resolved in zip(written, racks, strict=True):
        for domain in sorted({host.nvlink_domain for host in resolved.hosts}):
            owner = owners.setdefault(domain, rack)
            if owner is rack or (
                _is_domain_named_in_spec(owner, domain) and _is_domain_named_in_spec(rack, domain)
            ):
                continue
            finding = Finding(
                message=f"racks {owner.name} and {rack.name} both have an NVLink domain {domain}",
                label="the hosts of both racks would count as one domain",
                help="rename one domain, or set nvlink_domain in both racks if it is one domain",
                causes=(Cause(f"{owner.path}.name", "the other rack"),),
            )
            sink.report("H08", finding, at=f"{rack.path}.name")


def _is_domain_named_in_spec(rack: SpecRack, domain: str) -> bool:
    """Return True if the spec names ``domain`` as an NVLink domain of ``rack``."""
    return domain == rack.nvlink_domain or domain in rack.domains.values()


def _without_excluded_hosts(rack: Rack, hosts: SpecHosts) -> Rack:
    """Return ``rack`` without its spare and unavailable hosts."""
    kept = tuple(
        host
        for host in rack.hosts
        if host.name not in hosts.spare and host.name not in hosts.unavailable
    )
    return Rack(rack.name, kept)


def _check_remaining_hosts(
    hosts: SpecHosts, racks: tuple[Rack, ...], node: NodeType, sink: Sink
) -> None:
    """Report if no host remains (H06), or if several hosts remain that have no NICs (H07)."""
    left = sum(len(rack.hosts) for rack in racks)
    if not left and not sink.failed():  # an invalid list would be the cause
        excluded = f"{len(hosts.spare)} spare, {len(hosts.unavailable)} unavailable"
        # Hosts that are down do not come back by an edit of the spec, but spare hosts do.
        spares = bool(hosts.spare.keys() - hosts.unavailable.keys())
        finding = Finding(
            "no host is left for the job",
            f"{len(hosts.paths)} hosts, {excluded}",
            help=f"remove hosts from {AT}.spare or {AT}.unavailable, or add hosts to the cluster",
            fix=f"remove {AT}.spare" if spares else "",
        )
        sink.report("H06", finding, at=f"{AT}.racks" if hosts.named else f"{AT}.nodes")
    if left > 1 and not node.nics:
        finding = Finding(f"{left} hosts without NICs cannot communicate", fix=f"{AT}.node.nics: 8")
        sink.report("H07", finding, at=f"{AT}.node.nics")


LEVELS_PATH = "cluster.levels"
TIER_NAMES = {1: ("spine",), 2: ("pod", "spine"), 3: ("pod", "spine", "core")}
"""Default names of the switch tiers above the leaf, by the number of tiers. With more tiers, the
names are tier2, tier3 and so on."""


def resolve_levels(
    spec: ClusterSpec, racks: list[SpecRack], fabric: Fabric, sink: Sink
) -> tuple[SwitchTier, ...]:
    """Return the tiers of switches above the leaf switches, nearest tier first.

    Each rack lists one switch per tier in ``above``. Report an error (H10) if racks list different
    numbers of switches, or if ``levels`` does not list the leaf and each of these tiers.
    """
    depth = len(racks[0].above) if racks else 0
    for rack in racks:
        if len(rack.above) != depth:
            finding = Finding(
                f"number of switches above the leaf: rack {rack.name} lists {len(rack.above)}, "
                f"but rack {racks[0].name} lists {depth}",
                label=f"{len(rack.above)} != {depth} switches",
                help="list the same number of switches for every rack; list a switch that spans "
                "two tiers twice",
                causes=(Cause(f"{racks[0].path}.above", "the first rack"),),
            )
            sink.report("H10", finding, at=f"{rack.path}.above")
            return ()
    written = spec.levels or ()
    if written and len(written) != depth + 1:
        finding = Finding(
            f"the number of levels is {len(written)}, but the number of switches above the leaf "
            f"is {depth} per rack",
            label=f"{len(written)}, must be {depth} + 1 = {depth + 1}",
            help="the leaf is the first level; racks[].above lists one switch per level above it",
        )
        sink.report("H10", finding, at=LEVELS_PATH)
        return ()
    names = TIER_NAMES.get(depth) or tuple(f"tier{tier}" for tier in range(2, depth + 2))
    levels = written[1:] or tuple(LevelSpec(name=name) for name in names[:depth])
    return tuple(
        SwitchTier(
            level.name, level.oversubscription or 1.0, level.latency or fabric.latency_seconds
        )
        for level in levels
    )


def apply_leaf_level(spec: ClusterSpec, fabric: Fabric) -> Fabric:
    """Return ``fabric`` with the oversubscription and latency of the leaf level, ``levels[0]``."""
    leaf = spec.levels[0] if spec.levels else None
    if leaf is None:
        return fabric
    return replace(
        fabric,
        oversubscription=leaf.oversubscription or fabric.oversubscription,
        latency_seconds=leaf.latency or fabric.latency_seconds,
    )
