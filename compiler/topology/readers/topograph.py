"""NVIDIA topograph: its models (switches and blocks), its Slurm output, its graph as JSON.

https://github.com/NVIDIA/topograph: tests/models has models, pkg/topology the graph. Models write
switches as a list or as a mapping, hosts under ``capacity_blocks`` (older) or ``blocks``.
"""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading
from parc.compiler.topology.readers.slurm_topology import read_conf, real_names
from parc.compiler.topology.readers.switch_tree import Switch, leaf_paths

_CONF = re.compile(r"^[ \t]*(SwitchName|BlockName)\s*=", re.IGNORECASE | re.MULTILINE)
_DOMAINS = ("accelerator", "domain", "level-0")
"""What labels of the NVLink domain end in: accelerator.topograph.run/domain and older names."""


def read_topograph(text: str, name: str, sink: Sink) -> Fragment | None:
    """Racks from the leaves, tiers from the switches above, NVLink domains from labels."""
    reading = Reading(text, name, sink)
    if _CONF.search(text):
        return read_conf(reading, real_names(text))
    root = read_document(reading)
    if root is None or not root.wants(dict):
        return None
    if root.child("instances") is not None:
        _read_graph(root, reading)
    else:
        _read_model(root, reading)
    if not reading.hosts and reading.sound:
        finding = Finding("the file names no host", help="instances, blocks or capacity_blocks")
        reading.refuse("I02", finding, reading.span())
    return reading.fragment()


def _read_graph(root: Node, reading: Reading) -> None:
    for entry in root.items("instances"):
        if not entry.wants(dict):
            continue
        layers = [layer.value for layer in entry.items("network_layers") if layer.wants(str)]
        host = entry.text("id", required=True)
        reading.place(Located(host, tuple(layers), _domain(entry), entry.span))


def _domain(entry: Node) -> str | None:
    """The NVLink domain by a label, an annotation, or the key ``nvlink`` of older models."""
    for labels in (entry.mapping("labels"), entry.mapping("annotations")):
        for key in sorted(labels.value) if labels is not None else ():
            prefix, _, last = key.rpartition("/")
            says = last == "accelerator" or (last in _DOMAINS and "accel" in prefix)
            if says and labels is not None:
                return labels.text(key) or None
    return entry.text("nvlink") or None


def _read_model(root: Node, reading: Reading) -> None:
    switches: dict[str, Switch] = {}
    carries: dict[str, str] = {}
    for name, entry in _switches(root):
        switch = Switch(name, entry.span)
        listed = entry.items("switches", required=False)
        switch.children = [child.value for child in listed if child.wants(str)]
        for block in entry.items("capacity_blocks", required=False):
            if block.wants(str):
                carries[block.value] = name
        if switches.setdefault(name, switch) is not switch:
            cause = Cause("", "first here", switches[name].span)
            finding = Finding(f"switch {name[:60]} is described twice", causes=(cause,))
            reading.refuse("I03", finding, entry.span)
    blocks = _blocks(root, carries, reading)
    for leaf, hosts, _ in blocks:
        switches.setdefault(leaf, Switch(leaf, reading.span())).hosts += hosts
    paths = leaf_paths(_with_leaves(switches), reading)
    for leaf, hosts, block in blocks:
        domain = _domain(block)
        for host in hosts:
            reading.place(Located(host, paths.get(leaf, (leaf,)), domain, block.span))


def _with_leaves(switches: dict[str, Switch]) -> dict[str, Switch]:
    """A model does not describe a leaf that has nothing but a name."""
    for switch in list(switches.values()):
        for child in switch.children:
            switches.setdefault(child, Switch(child, switch.span))
    return switches


def _switches(root: Node) -> list[tuple[str, Node]]:
    found = root.child("switches")
    if found is None:
        root.lacks("switches")
        return []
    if isinstance(found.value, dict):
        entries = [(str(key), found.child(str(key))) for key in found.value]
        return [(key, entry) for key, entry in entries if entry is not None and entry.wants(dict)]
    listed = [entry for entry in found.items() if entry.wants(dict)]
    return [(entry.text("name", required=True), entry) for entry in listed]


def _blocks(
    root: Node, carries: dict[str, str], reading: Reading
) -> list[tuple[str, list[str], Node]]:
    """(leaf, hosts, entry) of every block; I02 for one that no switch carries."""
    found = []
    entries = root.items("blocks", required=False) + root.items("capacity_blocks", required=False)
    for entry in entries:
        if not entry.wants(dict):
            continue
        leaf = entry.text("switch") or carries.get(entry.text("name"), "")
        if not leaf:
            finding = Finding(f"no switch carries block {entry.text('name')[:60]}")
            reading.refuse("I02", finding, entry.span)
            continue
        nodes = [node for node in entry.items("nodes") if node.wants(str)]
        hosts = [host for node in nodes for host in reading.names(node.value, node.span)]
        found.append((leaf, hosts, entry))
    return found
