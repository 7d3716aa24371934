"""Slurm: the JSON of ``scontrol show nodes --json`` and ``sinfo --json``, three generations of it.

22.05 has ``nodes`` with states as words (``sinfo --json``); from 23.02 on ``scontrol`` has
``nodes`` with lists of states, and ``sinfo`` has groups of hosts that look alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.gres import gpus_of
from parc.compiler.topology.readers.reading import Reading, some

_GONE = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE"),
    *("INVALID", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "POWERED_DOWN"),
    *("POWERING_DOWN", "POWER_DOWN", "REBOOT_ISSUED", "UNKNOWN"),
}


@dataclass(slots=True)
class _Seen:
    """Facts of the hosts by value: GPUs, GPU types, cores."""

    gpus: dict[int, list[str]] = field(default_factory=dict)
    types: dict[str, None] = field(default_factory=dict)
    cores: dict[int, None] = field(default_factory=dict)
    first: dict[int, Span] = field(default_factory=dict)


def read_scontrol_nodes(text: str, name: str, sink: Sink) -> Fragment | None:
    """Hosts, GPUs and cores of each, and which are down; where they stand is not in the file."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None or not root.wants(dict):
        return None
    seen = _Seen()
    groups = root.child("nodes") is None and root.child("sinfo") is not None
    for host, entry in _grouped(root) if groups else _single(root):
        reading.place(Located(host, (), None, entry.span))
        _note_facts(host, entry, seen)
        if _states(entry) & _GONE:
            reading.unavailable[host] = None
    if not reading.hosts and reading.sound:
        reading.refuse("I02", Finding("the file names no host", "nodes is empty"), reading.span())
    return _finished(reading, seen)


def _single(root: Node) -> Iterator[tuple[str, Node]]:
    for entry in root.items("nodes"):
        if entry.wants(dict):
            yield entry.text("name", required=True), entry


def _grouped(root: Node) -> Iterator[tuple[str, Node]]:
    """A host stands in the group of each of its partitions."""
    seen: set[str] = set()
    for entry in root.items("sinfo"):
        nodes = entry.mapping("nodes") if entry.wants(dict) else None
        for host in nodes.items("nodes") if nodes is not None else ():
            if host.wants(str) and host.value not in seen:
                seen.add(host.value)
                yield host.value, entry


def _states(entry: Node) -> set[str]:
    """``idle`` and flags in 22.05, a list later, below ``node`` in groups."""
    found: set[str] = set()
    for value in (entry.child("state"), entry.child("state_flags"), entry.child("node")):
        state = value.child("state") if value is not None and value.path[-1] == "node" else value
        words = state.value if state is not None else ()
        words = [words] if isinstance(words, str) else words
        if isinstance(words, list | tuple):
            found |= {str(word).upper() for word in words}
    return found


def _note_facts(host: str, entry: Node, seen: _Seen) -> None:
    gres = entry.child("gres")
    words = entry.text("gres", "total") if gres and isinstance(gres.value, dict) else None
    text = entry.text("gres") if words is None else words
    gpus, types = gpus_of(text)
    seen.types.update(dict.fromkeys(types))
    seen.gpus.setdefault(gpus, []).append(host)
    if gpus not in seen.first:
        seen.first[gpus] = gres.span if gres is not None else entry.span
    sockets, cores = entry.value.get("sockets"), entry.value.get("cores")
    if isinstance(sockets, int) and isinstance(cores, int):
        seen.cores[sockets * cores] = None


def _finished(reading: Reading, seen: _Seen) -> Fragment | None:
    """Hosts without GPUs are left out; hosts with different numbers of GPUs are no node type."""
    without = seen.gpus.pop(0, [])
    counts = sorted(seen.gpus)
    if len(counts) > 1:
        parts = "; ".join(f"{count} on {some(seen.gpus[count])}" for count in counts[:3])
        finding = Finding(
            f"the hosts have different numbers of GPUs: {parts}",
            help="PARC lays out one node type: keep one kind of host in the file",
        )
        reading.refuse("I03", finding, seen.first[counts[1]])
    found = reading.fragment()
    if found is None:
        return None
    notes: list[str] = []
    if not counts:
        notes.append("no host has a gpu in its gres")
        return Fragment(found.hosts, found.unavailable, {}, {}, tuple(notes))
    if without:
        finding = Finding(
            f"left out, for they have no GPU: {some(without)}", f"{len(without)} of them"
        )
        reading.say("I04", finding, seen.first[0])
    node: dict[str, object] = {"gpus_per_node": counts[0]}
    if len(seen.cores) == 1 and min(seen.cores) > 0:
        node["cpu_cores"] = min(seen.cores)
    if seen.types:
        notes.append(f"gres calls the GPU {some(list(seen.types))}")
    dropped = set(without)
    hosts = tuple(host for host in found.hosts if host.name not in dropped)
    gone = tuple(host for host in found.unavailable if host not in dropped)
    spans = {"cluster.node.gpus_per_node": seen.first[counts[0]]}
    return Fragment(hosts, gone, {"cluster": {"node": node}}, spans, tuple(notes))
