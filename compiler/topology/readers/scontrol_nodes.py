"""Reader of Slurm's list of hosts: ``scontrol show nodes`` or ``sinfo``, both also with --json.

In Slurm 22.05, both print a list ``nodes``, and the state of a host is one word. Since 23.02, the
state is a list of words, and ``sinfo --json`` prints a list ``sinfo`` of groups of equal hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.spec.reading.yaml_tree import SpecTree
from parc.compiler.topology.readers.document import Document, DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import (
    Fragment,
    HostFilter,
    HostLabels,
    LocatedHost,
    Reading,
    keep_all,
    summarize_names,
)
from parc.compiler.topology.readers.sinfo_table import SINFO_HEAD, sinfo_document, state_words

_GONE = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE"),
    *("INVALID", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "POWERED_DOWN"),
    *("POWERING_DOWN", "POWER_DOWN", "REBOOT_ISSUED", "UNKNOWN"),
}
"""States of hosts that cannot run a job."""
DETECTED_IN = 65_536
"""Number of characters at the start of a text that may contain the first line of a table."""
_RECORD = re.compile(r"(?m)^NodeName=")
_PAIR = re.compile(r"(?:^|(?<=\s))(\w+)=(\S*)")
_TEXT_KEYS = {
    "NodeName": "name",
    "AvailableFeatures": "features",
    "Gres": "gres",
    "Partitions": "partitions",
    "State": "state",
    "Sockets": "sockets",
    "CoresPerSocket": "cores",
}
"""Key in a text -> key in JSON."""
_GPUS = re.compile(r"\bgpu(?::([\w.-]+))?[:=]([0-9]{1,6})(?![0-9])")


def parse_gres_gpus(text: str) -> tuple[int, tuple[str, ...]]:
    """Return (number of GPUs, GPU types) in a gres or tres text of Slurm.

    Examples: ``gpu:h100:8(S:0-1)`` in gres, ``gres/gpu:h100=16`` in tres. A tres text lists the
    GPUs twice, as a total and per type, so only one of these counts is used.
    """
    found = _GPUS.findall(text)
    total = sum(int(count) for kind, count in found if not kind)
    parts = sum(int(count) for kind, count in found if kind)
    types = tuple(dict.fromkeys(kind for kind, _ in found if kind))
    return (max(total, parts) if "=" in text else total + parts), types


@dataclass(slots=True)
class _HostHardware:
    """GPU counts, GPU types and core counts of the hosts that were read so far."""

    gpus: dict[int, list[str]] = field(default_factory=dict)
    """Number of GPUs -> hosts with this number."""
    types: dict[str, None] = field(default_factory=dict)
    cores: dict[int, None] = field(default_factory=dict)
    first: dict[int, Span] = field(default_factory=dict)
    """Number of GPUs -> position in the file of the first host with this number."""
    labels: dict[str, HostLabels] = field(default_factory=dict)
    """Host -> its labels."""


def read_scontrol_nodes(
    text: str, name: str, sink: Sink, keep: HostFilter = keep_all
) -> Fragment | None:
    """Read the hosts of a Slurm cluster from the output of scontrol or sinfo.

    The result contains host names, GPUs, cores, and the hosts that cannot run a job. Hosts without
    GPUs and those that ``keep`` does not accept are left out. The file does not list racks.
    """
    reading = Reading(text, name, sink)
    reading.lists_nodes = True
    root = _node_document(reading)
    if root is None or not root.check_type(dict):
        return None
    facts = _HostHardware()
    groups = root.child("nodes") is None and root.child("sinfo") is not None
    partitions = _sinfo_partitions(root) if groups else {}
    for host, entry in _sinfo_host_entries(root) if groups else _host_entries(root):
        labels = _host_labels(entry, partitions.get(host, ()))
        if not keep(labels):
            reading.left_out[host] = None
            continue
        reading.add_host(LocatedHost(host, (), None, entry.span))
        _record_hardware(host, entry, facts)
        facts.labels[host] = labels
        if _host_states(entry) & _GONE:
            reading.unavailable[host] = None
    if not reading.hosts and not reading.left_out and reading.is_valid:
        reading.report_error(
            "I02",
            Finding("the file contains no hosts", "the list of nodes is empty"),
            reading.span(),
        )
    return _drop_hosts_without_gpus(reading, facts)


def _node_document(reading: Reading) -> DocumentNode | None:
    """Return the hosts of the file in the form of the JSON output; None after an error."""
    if _RECORD.search(reading.text) is not None:
        return _text_document(reading)
    if re.search(SINFO_HEAD, reading.text[:DETECTED_IN]):
        return sinfo_document(reading)
    return read_document(reading)


def _text_document(reading: Reading) -> DocumentNode:
    """Return the hosts of ``scontrol show nodes`` in the form of its JSON output.

    The text has one record per host, which starts with ``NodeName=`` and consists of
    ``Key=value`` pairs on one line (-o) or several lines.
    """
    nodes: list[dict[str, object]] = []
    spans: dict[str, Span] = {}
    for line in reading.lines():
        for pair in _PAIR.finditer(line.text):
            key, value = pair.groups()
            if key == "NodeName":
                spans[f"nodes[{len(nodes)}]"] = reading.span(
                    line.number, pair.start(2) + 1, len(value)
                )
                nodes.append({})
            if nodes and key in _TEXT_KEYS:
                nodes[-1].setdefault(_TEXT_KEYS[key], _text_value(key, value))
    return Document(reading, {"nodes": nodes}, SpecTree(None, spans, {})).root


def _text_value(key: str, value: str) -> object:
    if key == "State":
        return state_words(value)
    if key in ("AvailableFeatures", "Partitions"):
        return [] if value == "(null)" else value.split(",")
    return int(value) if value.isdecimal() and key != "NodeName" else value


def _host_entries(root: DocumentNode) -> Iterator[tuple[str, DocumentNode]]:
    """Yield (host name, entry) for each entry of the list ``nodes``."""
    for entry in root.items("nodes"):
        if entry.check_type(dict):
            yield entry.text("name", required=True), entry


def _sinfo_host_entries(root: DocumentNode) -> Iterator[tuple[str, DocumentNode]]:
    """Yield (host name, entry of its group) for each host in the list ``sinfo``.

    Slurm lists hosts in groups, with at least one group per partition. If a host is in several
    groups, only the first group is used.
    """
    seen: set[str] = set()
    for entry in root.items("sinfo"):
        nodes = entry.mapping("nodes") if entry.check_type(dict) else None
        for host in nodes.items("nodes") if nodes is not None else ():
            if host.check_type(str) and host.value not in seen:
                seen.add(host.value)
                yield host.value, entry


def _sinfo_partitions(root: DocumentNode) -> dict[str, tuple[str, ...]]:
    """Return host -> partitions, from the list ``sinfo``."""
    found: dict[str, dict[str, None]] = {}
    for entry in root.items("sinfo"):
        partition, nodes = entry.child("partition"), entry.child("nodes")
        name = partition.child("name") if partition is not None else None
        hosts = nodes.child("nodes") if nodes is not None else None
        if name is None or hosts is None or not isinstance(hosts.value, list):
            continue
        for host in hosts.value:
            found.setdefault(str(host), {})[str(name.value)] = None
    return {host: tuple(names) for host, names in found.items()}


def _host_labels(entry: DocumentNode, partitions: tuple[str, ...]) -> HostLabels:
    """Return the labels of a host: its GPU types are those in its gres."""
    gpus, types = parse_gres_gpus(_gres_text(entry))
    features = _word_list(entry.child("features")) if gpus else ()
    found = partitions or _word_list(entry.child("partitions"))
    return HostLabels(types, found, features=features)


def _word_list(node: DocumentNode | None) -> tuple[str, ...]:
    """Return the words of a list or of a text with commas; empty for other values."""
    value = node.value if node is not None else ()
    if isinstance(value, dict):
        value = value.get("total", "")
    if isinstance(value, str):
        value = [word for word in value.split(",") if word]
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list) else ()


def _gres_text(entry: DocumentNode) -> str:
    """Return the gres of a host; in a group of hosts, it is below the key ``total``."""
    gres = entry.child("gres")
    inner = gres is not None and isinstance(gres.value, dict)
    return entry.text("gres", "total") if inner else entry.text("gres")


def _host_states(entry: DocumentNode) -> set[str]:
    """Return the states of a host, such as IDLE and DRAIN, in upper case.

    Slurm 22.05 writes one state and a list of flags. Later versions write a list of states. In an
    entry of a group of hosts, this list is below the key ``node``.
    """
    found: set[str] = set()
    for value in (entry.child("state"), entry.child("state_flags"), entry.child("node")):
        state = value.child("state") if value is not None and value.path[-1] == "node" else value
        words = state.value if state is not None else ()
        words = [words] if isinstance(words, str) else words
        if isinstance(words, list | tuple):
            found |= {str(word).upper() for word in words}
    return found


def _record_hardware(host: str, entry: DocumentNode, facts: _HostHardware) -> None:
    """Add the GPUs, GPU types and cores of ``host`` to ``facts``."""
    gres = entry.child("gres")
    gpus, types = parse_gres_gpus(_gres_text(entry))
    facts.types.update(dict.fromkeys(types))
    facts.gpus.setdefault(gpus, []).append(host)
    if gpus not in facts.first:
        facts.first[gpus] = gres.span if gres is not None else entry.span
    sockets, cores = entry.value.get("sockets"), entry.value.get("cores")
    if isinstance(sockets, int) and isinstance(cores, int):
        facts.cores[sockets * cores] = None


def _drop_hosts_without_gpus(reading: Reading, facts: _HostHardware) -> Fragment | None:
    """Return the content of the file without the hosts that have no GPUs.

    If no host has GPUs, all hosts are kept. Reports an error if the hosts with GPUs have different
    numbers of GPUs (I03).
    """
    without = facts.gpus.pop(0, [])
    if facts.gpus:
        reading.left_out |= dict.fromkeys(without)
    for host, labels in facts.labels.items():
        if host not in reading.left_out:
            reading.labels[labels] = None
    counts = sorted(facts.gpus)
    if len(counts) > 1:
        parts = "; ".join(
            f"{count} on {summarize_names(facts.gpus[count])}" for count in counts[:3]
        )
        finding = Finding(
            f"hosts have different numbers of GPUs: {parts}",
            help="PARC supports one node type per job: keep only hosts of one type in the file or, "
            "in parc init, select them with --gpu or --partition",
        )
        reading.report_error("I03", finding, facts.first[counts[1]])
    found = reading.fragment()
    if found is None:
        return None
    notes: list[str] = []
    if not counts:
        notes.append("no host lists GPUs in its gres")
        return replace(found, notes=tuple(notes))
    if without:
        finding = Finding(
            f"hosts without GPUs are left out: {summarize_names(without)}", f"{len(without)} hosts"
        )
        reading.report("I04", finding, facts.first[0])
    node: dict[str, object] = {"gpus_per_node": counts[0]}
    if len(facts.cores) == 1 and min(facts.cores) > 0:
        node["cpu_cores"] = min(facts.cores)
    if facts.types:
        notes.append(f"GPU type in gres: {summarize_names(list(facts.types))}")
    # A set, because ``in`` runs once per host.
    dropped = set(without)
    hosts = tuple(host for host in found.hosts if host.name not in dropped)
    gone = tuple(host for host in found.unavailable if host not in dropped)
    spans = {"cluster.node.gpus_per_node": facts.first[counts[0]]}
    section = {"cluster": {"node": node}}
    return replace(
        found, hosts=hosts, unavailable=gone, spec=section, spans=spans, notes=tuple(notes)
    )
