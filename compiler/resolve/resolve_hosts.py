"""Hosts and racks of the spec, and the expansion of their host lists.

Expand the host lists of a spec into unique names; problems are reported at their position.

Resolve ``racks:`` or ``nodes:`` of a cluster to unique hosts per rack, and spare hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.spec.cluster_spec import ClusterSpec, RackSpec
from parc.compiler.spec.reading.tree_builder import join
from parc.compiler.topology.hostlist import (
    MOST_HOSTS,
    HostlistError,
    TooManyHosts,
    expand,
    natural_key,
)

MOST_COMPARED = 2000
"""Limit of names that a misspelled name is compared with: matching is slow."""
SHOWN = 3
"""Names that a message lists before ``and N more``."""


def read_hosts(lists: str | tuple[str, ...], sink: Sink, at: str) -> list[tuple[str, list[str]]]:
    """Return (path, names) per host list; an invalid list is reported and left out."""
    texts = (
        [(at, lists)]
        if isinstance(lists, str)
        else [(f"{at}[{index}]", text) for index, text in enumerate(lists)]
    )
    found = []
    for path, text in texts:
        try:
            found.append((path, expand(text)))
        except HostlistError as error:
            code = "H09" if isinstance(error, TooManyHosts) else "H01"
            finding = Finding(f"host list {text[:60]!r}: {error.message}", error.message)
            sink.report(code, finding, at=path, span=_inside(sink, path, text, error))
    return found


def _inside(sink: Sink, path: str, text: str, error: HostlistError) -> Span | None:
    """Return the span of the invalid part; None unless one line contains the host list as is."""
    span = sink.positions.span_of(path) if sink.positions.is_written(path) else None
    lines = sink.positions.lines.get(span.file, ()) if span else ()
    if span is None or not 0 < span.line <= len(lines):
        return None
    start = lines[span.line - 1].find(text, span.column - 1) if text else -1
    if start < 0:
        return None
    return Span(span.file, span.line, start + error.column, error.length)


def unique_hosts(
    lists: Iterable[tuple[str, list[str]]], paths: dict[str, str], sink: Sink
) -> list[str]:
    """Return the names that are not in ``paths`` yet, in order, and add them; H02 for repeats.

    ``paths``: host name -> spec path that lists it first.
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
            _report_repeated(repeated, paths, sink, path)
    return fresh


def _report_repeated(repeated: list[str], paths: dict[str, str], sink: Sink, at: str) -> None:
    places = dict.fromkeys(paths[name] for name in repeated)
    causes = tuple(Cause(path, "listed first here") for path in list(places)[:SHOWN] if path != at)
    finding = Finding(
        message=f"{some_hosts(repeated)} {are(repeated)} listed twice",
        label="listed again here" if causes else "twice in this list",
        causes=causes,
    )
    sink.report("H02", finding, at=at)


def near_hosts(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three similar names: one that differs only in zero padding, else the nearest."""
    from difflib import get_close_matches

    names = list(known)
    parts = natural_key(name)[0]
    padded = [other for other in names if natural_key(other)[0] == parts]
    alike = [other for other in names if abs(len(other) - len(name)) <= 1][:MOST_COMPARED]
    return padded[:1] or get_close_matches(name, alike, n=3, cutoff=0.7)


def report_too_many(hosts: int, sink: Sink, at: str) -> None:
    """Report H09: more hosts than PARC supports."""
    finding = Finding(f"{hosts} hosts", f"{hosts} > {MOST_HOSTS}")
    sink.report("H09", finding, at=at)


def some_hosts(names: list[str]) -> str:
    """Return the names as text, for example ``n1, n2, n3 and 5 more``."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def are(names: list[str]) -> str:
    """Return ``is`` for one name, else ``are``."""
    return "is" if len(names) == 1 else "are"


_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class WrittenRack:
    """Rack with all hosts that the spec lists, including spare and unavailable ones."""

    name: str
    hosts: list[str]
    nvlink_domain: str | None
    path: str
    domains: dict[str, str] = field(default_factory=dict)
    """Host -> NVLink domain, if the rack names several."""
    above: tuple[str, ...] = ()
    """Switches above the leaf, nearest first."""


@dataclass(slots=True)
class Hosts:
    """Hosts of a cluster, with the spec paths that list them."""

    racks: list[WrittenRack]
    named: bool
    """False if the names are placeholders."""
    complete: bool = True
    """False if a host list was invalid, so that hosts may be missing."""
    paths: dict[str, str] = field(default_factory=dict)
    """Host -> spec path that lists it first."""
    spare: dict[str, str] = field(default_factory=dict)
    """Spare host -> spec path, in the order of the spec."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Unavailable host -> spec path, in the order of the spec."""


def resolve_hosts(spec: ClusterSpec, sink: Sink, at: str) -> Hosts | None:
    """Return the hosts of the cluster at path ``at``, in the order of the spec; None after H04."""
    if not _has_one_form(spec, sink, at):
        return None
    hosts = _placeholders(spec, sink, at) if spec.nodes else _named_hosts(spec, sink, at)
    if hosts is None:
        return None
    hosts.unavailable = _excluded_hosts(spec.unavailable, hosts, sink, f"{at}.unavailable")
    hosts.spare = _excluded_hosts(spec.spare, hosts, sink, f"{at}.spare")
    both = [name for name in hosts.spare if name in hosts.unavailable]
    if both:
        cause = Cause(hosts.unavailable[both[0]], "unavailable here")
        message = f"{some_hosts(both)} {are(both)} both spare and unavailable"
        sink.report("H02", Finding(message, causes=(cause,)), at=hosts.spare[both[0]])
    return hosts


def _has_one_form(spec: ClusterSpec, sink: Sink, at: str) -> bool:
    """Return True if the spec sets either nodes or racks, and nodes_per_rack only with nodes.

    A topology file has become racks before.
    """
    if (spec.nodes is None) == (spec.racks is None):
        message = "both nodes and racks" if spec.nodes else "neither nodes nor racks nor topology"
        fix = f"{at}.nodes: 4, or {at}.racks: [{{name: r01, nodes: 'r01n[01-16]'}}]"
        path = f"{at}.nodes" if spec.nodes else at
        finding = Finding(f"the cluster has {message}", "set exactly one of them", fix=fix)
        sink.report("H04", finding, at=path, key=True)
        return False
    if spec.racks is not None and spec.nodes_per_rack is not None:
        finding = Finding("nodes_per_rack is valid only with nodes", "racks list their hosts")
        sink.report("H04", finding, at=f"{at}.nodes_per_rack", key=True)
        return False
    return True


def _placeholders(spec: ClusterSpec, sink: Sink, at: str) -> Hosts | None:
    """Return placeholders: ``nodes: 40`` gives node0001 to node0040 in racks of nodes_per_rack.

    None after H09.
    """
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
    return Hosts(racks, named=False, paths=dict.fromkeys(names, f"{at}.nodes"))


def _named_hosts(spec: ClusterSpec, sink: Sink, at: str) -> Hosts | None:
    hosts = Hosts([], named=True)
    names: dict[str, str] = {}
    for index, rack in enumerate(spec.racks or ()):
        path = f"{at}.racks[{index}]"
        _check_labels(rack, names, sink, path)
        read = read_hosts(rack.nodes, sink, f"{path}.nodes")
        hosts.complete &= len(read) == (1 if isinstance(rack.nodes, str) else len(rack.nodes))
        found = unique_hosts(read, hosts.paths, sink)
        domains = _domains(rack, found, sink, path)
        above = rack.above or ()
        hosts.racks.append(WrittenRack(rack.name, found, rack.nvlink_domain, path, domains, above))
        if len(hosts.paths) > MOST_HOSTS:
            report_too_many(len(hosts.paths), sink, f"{path}.nodes")
            return None
    return hosts


def _domains(rack: RackSpec, hosts: list[str], sink: Sink, path: str) -> dict[str, str]:
    """Return host -> NVLink domain, from ``nvlink_domains`` of a rack.

    H08: invalid name; H02: repeated host; H03: host of another rack.
    """
    found: dict[str, str] = {}
    if rack.nvlink_domains is None:
        return found
    if rack.nvlink_domain is not None:
        finding = Finding("a rack has either nvlink_domain or nvlink_domains, not both")
        sink.report("H08", finding, at=f"{path}.nvlink_domains", key=True)
    known = set(hosts)
    paths: dict[str, str] = {}
    for domain, lists in rack.nvlink_domains.items():
        at = join(f"{path}.nvlink_domains", domain)
        _check_label("nvlink_domain", domain, sink, at)
        members = unique_hosts(read_hosts(lists, sink, at), paths, sink)
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
        valid = "valid: up to 64 letters, digits, dots, dashes and underscores; no mark first"
        finding = Finding(f"{label[:64]!r} is not a valid {key}", help=valid)
        sink.report("H08", finding, at=at)


def _check_labels(rack: RackSpec, names: dict[str, str], sink: Sink, path: str) -> None:
    """Check names of racks, domains and switches, which emitted scripts use, and repeated racks."""
    labels = (("name", rack.name), ("nvlink_domain", rack.nvlink_domain))
    for key, label in labels:
        if label is not None:
            _check_label(key, label, sink, f"{path}.{key}")
    for index, switch in enumerate(rack.above or ()):
        _check_label("switch", switch, sink, f"{path}.above[{index}]")
    if rack.name in names:
        cause = Cause(names[rack.name], "the first one")
        finding = Finding(f"two racks have the name {rack.name[:64]!r}", causes=(cause,))
        sink.report("H08", finding, at=f"{path}.name")
    names.setdefault(rack.name, f"{path}.name")


def _excluded_hosts(
    lists: str | tuple[str, ...], hosts: Hosts, sink: Sink, at: str
) -> dict[str, str]:
    """Return host -> spec path of spare or unavailable hosts; H03 if the cluster lacks one."""
    found: dict[str, str] = {}
    unique_hosts(read_hosts(lists, sink, at) if lists else (), found, sink)
    unknown: dict[str, list[str]] = {}
    for name, path in found.items():
        if name not in hosts.paths and hosts.complete:
            unknown.setdefault(path, []).append(name)
    for path, names in unknown.items():
        near = near_hosts(names[0], hosts.paths)
        finding = Finding(
            message=f"{some_hosts(names)} {are(names)} not among the {len(hosts.paths)} hosts",
            label="the cluster has no such host",
            help=f"did you mean {' or '.join(near)}?" if near else "",
            fix=f"{path}: {near[0]}" if near and len(names) == 1 else "",
        )
        sink.report("H03", finding, at=path)
    return {name: path for name, path in found.items() if name in hosts.paths}
