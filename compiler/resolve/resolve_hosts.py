"""Resolve ``racks:`` or ``nodes:`` of a cluster to unique hosts per rack, and spare hosts.

Host lists such as ``n[01-16]`` are expanded. Errors are reported at their position in the host
list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.cluster_spec import ClusterSpec, RackSpec
from parc.compiler.spec.reading.tree_builder import join_path
from parc.compiler.topology.host_list_findings import host_list_finding
from parc.compiler.topology.hostlist import (
    MOST_HOSTS,
    HostlistError,
    compress_hosts,
    expand_host_list,
    natural_key,
)

MOST_COMPARED = 2000
"""Largest number of host names with which a misspelled name is compared, because comparing is
slow."""
MOST_LISTED = 200
"""Largest number of characters of a host list in a message."""
SHOWN = 3
"""Number of names that a message lists before ``and N more``."""


def expand_host_lists(
    lists: str | tuple[str, ...], sink: Sink, at: str
) -> list[tuple[str, list[str]]]:
    """Return (spec path, host names) for each host list.

    A list that is invalid (H01) or too long (H09) is reported and left out.
    """
    texts = (
        [(at, lists)]
        if isinstance(lists, str)
        else [(f"{at}[{index}]", text) for index, text in enumerate(lists)]
    )
    found = []
    for path, text in texts:
        try:
            found.append((path, expand_host_list(text)))
        except HostlistError as error:
            code, finding = host_list_finding(text, error)
            sink.report(code, finding, at=path, span=_span_of_error(sink, path, text, error))
    return found


def _span_of_error(sink: Sink, path: str, text: str, error: HostlistError) -> Span | None:
    """Return the position of the invalid part of a host list.

    None if the position is unknown, for example because the host list spans several lines.
    """
    span = sink.positions.span_at(path) if sink.positions.is_path_in_spec(path) else None
    lines = sink.positions.lines.get(span.file, ()) if span else ()
    if span is None or not 0 < span.line <= len(lines):
        return None
    start = lines[span.line - 1].find(text, span.column - 1) if text else -1
    if start < 0:
        return None
    return Span(span.file, span.line, start + error.column, error.length)


def add_unique_hosts(
    lists: Iterable[tuple[str, list[str]]], paths: dict[str, str], sink: Sink
) -> list[str]:
    """Add the host names in ``lists`` to ``paths``, and return the names that were added.

    ``paths`` maps a host name to the spec path that lists the host first. A name that ``paths``
    already contains is reported (H02).
    """
    fresh: list[str] = []
    for path, names in lists:
        repeated = []
        for name in names:
            if name in paths:
                repeated.append(name)
            else:
                paths[name] = path
                fresh.append(name)
        if repeated:
            _report_repeated_hosts(repeated, paths, sink, path)
    return fresh


def _report_repeated_hosts(repeated: list[str], paths: dict[str, str], sink: Sink, at: str) -> None:
    """Report hosts that are listed twice, with the places that list them first (H02)."""
    places = dict.fromkeys(paths[name] for name in repeated)
    causes = tuple(Cause(path, "listed first here") for path in list(places)[:SHOWN] if path != at)
    finding = Finding(
        message=f"{format_hosts(repeated)} {is_or_are(repeated)} listed twice",
        label="listed again here" if causes else "listed twice in this list",
        help=f"list every host once: remove {format_hosts(repeated)} from one of the lists"
        if causes
        else f"list {format_hosts(repeated)} once",
        causes=causes,
    )
    sink.report("H02", finding, at=at)


def similar_hosts(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of the ``known`` host names that are similar to ``name``.

    If a known name differs only in zero padding (n1 and n01), only this name is returned.
    """
    from difflib import get_close_matches

    names = list(known)
    parts = natural_key(name)[0]
    # natural_key compares n1 and n01 as equal numbers.
    padded = [other for other in names if natural_key(other)[0] == parts]
    # Typing errors seldom change the length by more than one.
    alike = [other for other in names if abs(len(other) - len(name)) <= 1][:MOST_COMPARED]
    return padded[:1] or get_close_matches(name, alike, n=3, cutoff=0.7)


def report_too_many_hosts(hosts: int, sink: Sink, at: str) -> None:
    """Report that the cluster has more hosts than PARC supports (H09)."""
    finding = Finding(
        f"the cluster has {hosts} hosts, more than the {MOST_HOSTS} that PARC supports",
        f"{hosts} > {MOST_HOSTS} hosts",
    )
    sink.report("H09", finding, at=at)


def format_hosts(names: list[str]) -> str:
    """Format host names for a message, for example ``n1, n2, n3 and 5 more``."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def is_or_are(names: list[str]) -> str:
    """Return the verb "is" for one name, and "are" for several."""
    return "is" if len(names) == 1 else "are"


_VALID_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@frozen
class SpecRack:
    """Rack as the spec lists it, including its spare and unavailable hosts."""

    name: str
    hosts: list[str]
    nvlink_domain: str | None
    path: str
    domains: dict[str, str] = field(default_factory=dict)
    """NVLink domain of each host, if the rack names several domains."""
    above: tuple[str, ...] = ()
    """Switches above the leaf, nearest first."""


@dataclass(slots=True)
class SpecHosts:
    """Hosts of a cluster by rack, with the spec path of each host."""

    racks: list[SpecRack]
    named: bool
    """False if the host names are placeholders, because the spec sets only their number."""
    complete: bool = True
    """False if a host list was invalid, so that some hosts may be missing."""
    paths: dict[str, str] = field(default_factory=dict)
    """Host name -> spec path of the host list that contains it first."""
    spare: dict[str, str] = field(default_factory=dict)
    """Name of each spare host -> its spec path, in the order of the spec."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Name of each unavailable host -> its spec path, in the order of the spec."""


def resolve_hosts(spec: ClusterSpec, sink: Sink, at: str) -> SpecHosts | None:
    """Return the hosts of the cluster at the spec path ``at``.

    None after an error: the spec does not list hosts in exactly one form (H04), or lists too many
    hosts (H09).
    """
    if not _has_one_host_form(spec, sink, at):
        return None
    hosts = _placeholder_hosts(spec, sink, at) if spec.nodes else _hosts_of_racks(spec, sink, at)
    if hosts is None:
        return None
    hosts.unavailable = _excluded_hosts(spec.unavailable, hosts, sink, f"{at}.unavailable")
    hosts.spare = _excluded_hosts(spec.spare, hosts, sink, f"{at}.spare")
    both = [name for name in hosts.spare if name in hosts.unavailable]
    if both:
        cause = Cause(hosts.unavailable[both[0]], "listed as unavailable here")
        message = f"{format_hosts(both)} {is_or_are(both)} both spare and unavailable"
        edit = f"remove {format_hosts(both)} from spare or from unavailable"
        finding = Finding(message, label="listed as spare here", help=edit, causes=(cause,))
        sink.report("H02", finding, at=hosts.spare[both[0]])
    return hosts


def _has_one_host_form(spec: ClusterSpec, sink: Sink, at: str) -> bool:
    """Return True if the spec gives its hosts either as nodes or as racks.

    Otherwise report an error (H04). Also report nodes_per_rack if the spec gives racks. ``spec``
    already contains the racks of a topology file.
    """
    if (spec.nodes is None) == (spec.racks is None):
        message = "both nodes and racks" if spec.nodes else "no nodes, racks or topology"
        fix = f"{at}.nodes: 4, or {at}.racks: [{{name: r01, nodes: 'r01n[01-16]'}}]"
        path = f"{at}.nodes" if spec.nodes else at
        finding = Finding(
            f"the cluster sets {message}",
            "a cluster must set exactly one of nodes, racks and topology",
            fix=fix,
        )
        sink.report("H04", finding, at=path, key=True)
        return False
    if spec.racks is not None and spec.nodes_per_rack is not None:
        finding = Finding(
            "nodes_per_rack has no effect if cluster.racks is set",
            "racks list their own hosts; set nodes_per_rack only with nodes",
        )
        sink.report("H04", finding, at=f"{at}.nodes_per_rack", key=True)
        return False
    return True


def _placeholder_hosts(spec: ClusterSpec, sink: Sink, at: str) -> SpecHosts | None:
    """Return hosts with placeholder names, in racks of ``nodes_per_rack`` hosts.

    For ``nodes: 40``, the names are node0001 to node0040. None after an error: there are too many
    hosts (H09).
    """
    nodes = spec.nodes or 0
    if nodes > MOST_HOSTS:
        report_too_many_hosts(nodes, sink, f"{at}.nodes")
        return None
    # Zero padding keeps the alphabetical order of the names the same as the numerical order.
    width = max(4, len(str(nodes)))
    names = [f"node{number:0{width}d}" for number in range(1, nodes + 1)]
    size = min(spec.nodes_per_rack or nodes, nodes)
    groups = [names[start : start + size] for start in range(0, nodes, size)]
    width = max(2, len(str(len(groups))))
    racks = [
        SpecRack(f"rack{number:0{width}d}", group, None, f"{at}.nodes")
        for number, group in enumerate(groups, start=1)
    ]
    return SpecHosts(racks, named=False, paths=dict.fromkeys(names, f"{at}.nodes"))


def _hosts_of_racks(spec: ClusterSpec, sink: Sink, at: str) -> SpecHosts | None:
    """Return the hosts that ``racks`` lists; None after an error: there are too many (H09)."""
    hosts = SpecHosts([], named=True)
    names: dict[str, str] = {}
    for index, rack in enumerate(spec.racks or ()):
        path = f"{at}.racks[{index}]"
        _check_rack_names(rack, names, sink, path)
        read = expand_host_lists(rack.nodes, sink, f"{path}.nodes")
        hosts.complete &= len(read) == (1 if isinstance(rack.nodes, str) else len(rack.nodes))
        found = add_unique_hosts(read, hosts.paths, sink)
        domains = _nvlink_domains_of_hosts(rack, found, sink, path)
        above = rack.above or ()
        hosts.racks.append(SpecRack(rack.name, found, rack.nvlink_domain, path, domains, above))
        if len(hosts.paths) > MOST_HOSTS:
            report_too_many_hosts(len(hosts.paths), sink, f"{path}.nodes")
            return None
    return hosts


def _nvlink_domains_of_hosts(
    rack: RackSpec, hosts: list[str], sink: Sink, path: str
) -> dict[str, str]:
    """Return (host name -> NVLink domain) for the hosts in ``nvlink_domains`` of a rack.

    An invalid domain name (H08), a repeated host (H02) and a host of another rack (H03) are
    reported.
    """
    found: dict[str, str] = {}
    if rack.nvlink_domains is None:
        return found
    if rack.nvlink_domain is not None:
        finding = Finding(
            "the rack sets both nvlink_domain and nvlink_domains",
            "a rack must set at most one of these keys",
            help="keep nvlink_domains if the rack has several domains, else nvlink_domain",
        )
        sink.report("H08", finding, at=f"{path}.nvlink_domains", key=True)
    known = set(hosts)
    paths: dict[str, str] = {}
    for domain, lists in rack.nvlink_domains.items():
        at = join_path(f"{path}.nvlink_domains", domain)
        _check_name("nvlink_domain", domain, sink, at)
        members = add_unique_hosts(expand_host_lists(lists, sink, at), paths, sink)
        foreign = [name for name in members if name not in known]
        if foreign:
            verb = is_or_are(foreign)
            message = f"{format_hosts(foreign)} {verb} not among the hosts of rack {rack.name}"
            own = f"hosts of rack {rack.name}: {compress_hosts(hosts)[:MOST_LISTED]}"
            finding = Finding(message, "the rack has no such host", help=own)
            sink.report("H03", finding, at=at)
        found |= dict.fromkeys(members, domain)
    return found


def _check_name(key: str, label: str, sink: Sink, at: str) -> None:
    """Report a name of a rack, NVLink domain or switch that is not valid (H08)."""
    if not _VALID_LABEL.fullmatch(label):
        valid = (
            "valid names: up to 64 letters, digits, dots, dashes and underscores, starting with a "
            "letter or a digit"
        )
        finding = Finding(f"{label[:64]!r} is not a valid {key}", help=valid)
        sink.report("H08", finding, at=at)


def _check_rack_names(rack: RackSpec, names: dict[str, str], sink: Sink, path: str) -> None:
    """Report invalid names in a rack, and a rack name that another rack already has (H08).

    These are the names of the rack, of its NVLink domains and of its switches. Emitted scripts
    contain these names, so only characters that need no quoting are valid.
    """
    labels = (("name", rack.name), ("nvlink_domain", rack.nvlink_domain))
    for key, label in labels:
        if label is not None:
            _check_name(key, label, sink, f"{path}.{key}")
    for index, switch in enumerate(rack.above or ()):
        _check_name("switch", switch, sink, f"{path}.above[{index}]")
    if rack.name in names:
        cause = Cause(names[rack.name], "the first rack with this name")
        finding = Finding(
            f"two racks have the name {rack.name[:64]!r}",
            label="the second rack with this name",
            help="rename one rack, or list the hosts of both under one rack",
            causes=(cause,),
        )
        sink.report("H08", finding, at=f"{path}.name")
    names.setdefault(rack.name, f"{path}.name")


def _excluded_hosts(
    lists: str | tuple[str, ...], hosts: SpecHosts, sink: Sink, at: str
) -> dict[str, str]:
    """Return (host name -> spec path) of the spare or unavailable hosts in ``lists``.

    A host that the cluster does not have is reported (H03) and left out.
    """
    found: dict[str, str] = {}
    add_unique_hosts(expand_host_lists(lists, sink, at) if lists else (), found, sink)
    unknown: dict[str, list[str]] = {}
    for name, path in found.items():
        # After an invalid host list, the host may be missing only because of that error.
        if name not in hosts.paths and hosts.complete:
            unknown.setdefault(path, []).append(name)
    for path, names in unknown.items():
        near = similar_hosts(names[0], hosts.paths)
        finding = Finding(
            message=f"{format_hosts(names)} {is_or_are(names)} not among the "
            f"{len(hosts.paths)} hosts of the cluster",
            label="the cluster has no such host",
            help=f"did you mean {' or '.join(near)}?"
            if near
            else f"hosts of the cluster: {compress_hosts(hosts.paths)[:MOST_LISTED]}",
            fix=f"{path}: {near[0]}" if near and len(names) == 1 else "",
        )
        sink.report("H03", finding, at=path)
    return {name: path for name, path in found.items() if name in hosts.paths}
