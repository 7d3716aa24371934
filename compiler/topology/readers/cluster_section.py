"""Conversion of topology files to the section ``cluster`` of a spec: racks, NVLink domains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.topology.hostlist import compress_hosts_in_order
from parc.compiler.topology.readers.reader_state import (
    Fragment,
    LocatedHost,
    location_text,
    summarize_names,
)

LONGEST_LABEL = 64
_INVALID = re.compile(r"[^A-Za-z0-9._-]")


def merge_fragments(fragments: Sequence[Fragment], sink: Sink) -> Fragment | None:
    """Return the content of several files as one fragment of a spec.

    If a file lists the hosts that are allocated to a job, all other hosts are dropped. Otherwise,
    if a file is a list of nodes, hosts that no such list contains are dropped (I04). Hosts
    that a file leaves out, such as hosts without GPUs, are dropped from all files. Returns None
    after an error: the files contradict each other (I03).
    """
    hosts: dict[str, LocatedHost] = {}
    spec: dict[str, Any] = {}
    before = sink.failed()
    for fragment in fragments:
        for host in fragment.hosts:
            hosts[host.name] = _merge_host(hosts.get(host.name, host), host, sink)
        first = next(iter(fragment.spans.values()), None) or _first_host_span(fragment)
        _merge_into(spec, fragment.spec, ("", first), sink)
    if sink.failed() and not before:
        return None
    allocated = dict.fromkeys(name for one in fragments for name in one.allocated)
    left_out = dict.fromkeys(name for one in fragments for name in one.left_out)
    unlisted = set[str]() if allocated else _unlisted_hosts(fragments, hosts, sink)
    kept = (allocated or hosts).keys() - left_out.keys() - unlisted
    gone = dict.fromkeys(name for one in fragments for name in one.unavailable)
    return Fragment(
        hosts=tuple(host for host in hosts.values() if host.name in kept),
        unavailable=tuple(name for name in gone if name in kept),
        spec=spec,
        spans={path: span for one in fragments for path, span in one.spans.items()},
        notes=tuple(dict.fromkeys(note for one in fragments for note in one.notes)),
        allocated=tuple(allocated),
        left_out=tuple(left_out),
        labels=tuple(dict.fromkeys(label for one in fragments for label in one.labels)),
    )


def _unlisted_hosts(
    fragments: Sequence[Fragment], hosts: Mapping[str, LocatedHost], sink: Sink
) -> set[str]:
    """Return the hosts that no list of nodes contains, and report them (I04).

    The result is empty if no file is a list of nodes.
    """
    lists = [one for one in fragments if one.lists_nodes]
    known = {host.name for one in lists for host in one.hosts}
    known |= {name for one in fragments for name in one.left_out}
    unlisted = [name for name in hosts if name not in known] if lists else []
    if unlisted:
        finding = Finding(
            f"hosts that no list of nodes contains are left out: {summarize_names(unlisted)}",
            label=format_count(len(unlisted), "host"),
            help="if they can run the job, add their output of scontrol show nodes",
        )
        sink.report("I04", finding, span=hosts[unlisted[0]].span)
    return set(unlisted)


def _first_host_span(fragment: Fragment) -> Span:
    return fragment.hosts[0].span if fragment.hosts else Span("", 1, 1)


def _merge_host(known: LocatedHost, host: LocatedHost, sink: Sink) -> LocatedHost:
    """Return a host with the switches and the NVLink domain that two files give for this host.

    Reports switches or domains that differ between the files (I03).
    """
    if known == host:
        return known
    paths = {known.path, host.path} - {()}
    domains = {known.nvlink_domain, host.nvlink_domain} - {None}
    if len(paths) > 1 or len(domains) > 1:
        finding = Finding(
            f"two files have different switches or domains for host {host.name}",
            label=f"listed below {location_text(host)}",
            causes=(Cause("", f"listed below {location_text(known)}", known.span),),
        )
        sink.report("I03", finding, span=host.span)
    return LocatedHost(
        host.name, known.path or host.path, known.nvlink_domain or host.nvlink_domain, known.span
    )


def _merge_into(spec: dict[str, Any], more: Any, where: tuple[str, Span], sink: Sink) -> None:
    """Add the keys of ``more`` to ``spec``; report keys that have two different values (I03)."""
    path, span = where
    for key, value in more.items():
        at = f"{path}.{key}" if path else str(key)
        known = spec.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            _merge_into(known, value, (at, span), sink)
        elif known is not None and known != value:
            message = (
                f"the files have different values for {at}: {str(known)[:60]} and {str(value)[:60]}"
            )
            sink.report("I03", Finding(message), at=at, span=span)
        else:
            spec[key] = dict(value) if isinstance(value, dict) else value


def cluster_section(fragment: Fragment, sink: Sink) -> tuple[dict[str, Any], dict[str, Span]]:
    """Return (section ``cluster`` of a spec, position in the files for each spec path).

    Hosts are in the order of the files. Racks are in the order of their first hosts. Reports an
    error if some hosts have switches and others do not (I02).
    """
    cluster = dict(fragment.spec.get("cluster", {}))
    spans = dict(fragment.spans)
    placed = [host for host in fragment.hosts if host.path]
    if placed and len(placed) < len(fragment.hosts):
        lost = next(host for host in fragment.hosts if not host.path)
        count = len(fragment.hosts) - len(placed)
        finding = Finding(f"{count} of {len(fragment.hosts)} hosts have no switch", lost.name)
        sink.report("I02", finding, span=lost.span)
    groups: dict[tuple[str, ...], list[LocatedHost]] = {}
    depth = max((len(host.path) for host in fragment.hosts), default=0)
    for host in fragment.hosts:
        groups.setdefault(_pad_path(host.path, depth), []).append(host)
    labels = _UniqueNames()
    names = _rack_names(list(groups), labels)
    domains = _shared_domains(fragment.hosts)
    racks = []
    for index, (path, hosts) in enumerate(groups.items()):
        racks.append(_rack_entry(names[path], path, hosts, (labels, domains)))
        spans[f"cluster.racks[{index}]"] = hosts[0].span
    if racks:
        cluster["racks"] = racks
    if fragment.unavailable:
        cluster["unavailable"] = compress_hosts_in_order(fragment.unavailable)
    return cluster, spans


def _pad_path(path: tuple[str, ...], depth: int) -> tuple[str, ...]:
    """Return the path of a host, extended to ``depth`` switches by repeating the leaf switch.

    A path is short if the leaf switch is connected directly to a higher tier.
    """
    return path[:1] * (depth - len(path)) + path if path else ("all",) * depth


def _shared_domains(hosts: Sequence[LocatedHost]) -> set[str]:
    """Return the names of all NVLink domains, or no names if every domain has a single host."""
    counts = Counter(host.nvlink_domain for host in hosts if host.nvlink_domain)
    return set(counts) if max(counts.values(), default=0) > 1 else set()


class _UniqueNames:
    """Table of valid and unique names for racks, NVLink domains and switches."""

    def __init__(self) -> None:
        self._labels: dict[tuple[str, str], str] = {}
        self._taken: set[tuple[str, str]] = set()

    def unique_name(self, kind: str, name: str) -> str:
        """Return a valid and unique name for the rack, NVLink domain or switch called ``name``.

        ``kind`` is "rack", "domain" or "switch". For one kind, equal names get the same result, and
        different names get different results.
        """
        if (kind, name) not in self._labels:
            # Keep the end of a long name, where the ids of clouds differ.
            plain = _INVALID.sub("-", name)[-LONGEST_LABEL:].lstrip("._-") or kind
            label, number = plain, 1
            while (kind, label) in self._taken:
                number += 1
                label = f"{plain[: LONGEST_LABEL - 8]}-{number}"
            self._taken.add((kind, label))
            self._labels[kind, name] = label
        return self._labels[kind, name]


def _rack_names(
    paths: Sequence[tuple[str, ...]], labels: _UniqueNames
) -> dict[tuple[str, ...], str]:
    """Return the rack name for each path of switches: the name of the leaf switch.

    If two leaf switches have the same name, the name of the switch above is added in front.
    """
    counts = Counter(path[0] if path else "all" for path in paths)
    names: dict[tuple[str, ...], str] = {}
    for path in paths:
        leaf = path[0] if path else "all"
        full = ".".join(reversed(path[:2])) if counts[leaf] > 1 else leaf
        repeated = len([other for other in names if other[:2] == path[:2]]) * (counts[leaf] > 1)
        names[path] = labels.unique_name("rack", f"{full}.{repeated}" if repeated else full)
    return names


def _rack_entry(
    name: str, path: tuple[str, ...], hosts: list[LocatedHost], known: tuple[_UniqueNames, set[str]]
) -> dict[str, Any]:
    """Return the spec entry of the rack ``name``, whose hosts are below the switches ``path``.

    ``known`` is (unique names given so far, NVLink domains to write into the spec).
    """
    labels, shared = known
    rack: dict[str, Any] = {
        "name": name,
        "nodes": compress_hosts_in_order(host.name for host in hosts),
    }
    domains: dict[str, list[str]] = {}
    for host in hosts:
        if host.nvlink_domain in shared:
            label = labels.unique_name("domain", str(host.nvlink_domain))
            domains.setdefault(label, []).append(host.name)
    # One domain with all hosts of the rack is written in the short form.
    if len(domains) == 1 and len(next(iter(domains.values()))) == len(hosts):
        rack["nvlink_domain"] = next(iter(domains))
    elif domains:
        rack["nvlink_domains"] = {
            label: compress_hosts_in_order(names) for label, names in domains.items()
        }
    if len(path) > 1:
        rack["above"] = [
            name if part == path[0] else labels.unique_name("switch", part) for part in path[1:]
        ]
    return rack
