"""Reader of the files of NVIDIA topograph: models, graphs as JSON, and topology.conf for Slurm.

In https://github.com/NVIDIA/topograph, models are in tests/models and the graph is in pkg/topology.
A model has switches, as a list or a mapping, and hosts below ``blocks`` (in older models
``capacity_blocks``).
"""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.topology.readers.document import DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import Fragment, LocatedHost, Reading
from parc.compiler.topology.readers.slurm_topology import read_real_names, read_topology_conf
from parc.compiler.topology.readers.switch_tree import SwitchEntry, leaf_paths

_CONF = re.compile(r"^[ \t]*(SwitchName|BlockName)\s*=", re.IGNORECASE | re.MULTILINE)
_DOMAINS = ("accelerator", "domain", "level-0")
"""Last parts of labels for the NVLink domain: accelerator.topograph.run/domain and older names."""


def read_topograph(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read hosts from a file that topograph wrote.

    Racks come from leaf switches, tiers from higher switches, and NVLink domains from labels.
    """
    reading = Reading(text, name, sink)
    # topograph's topology.conf has generated names (switch.1.1), and the real names in comments.
    if _CONF.search(text):
        return read_topology_conf(reading, read_real_names(text))
    root = read_document(reading)
    if root is None or not root.check_type(dict):
        return None
    if root.child("instances") is not None:
        _read_graph(root, reading)
    else:
        _read_topology_model(root, reading)
    if not reading.hosts and reading.is_valid:
        finding = Finding(
            "the file has no hosts",
            help="PARC reads hosts from the keys instances, blocks and capacity_blocks",
        )
        reading.report_error("I02", finding, reading.span())
    return reading.fragment()


def _read_graph(root: DocumentNode, reading: Reading) -> None:
    for entry in root.items("instances"):
        if not entry.check_type(dict):
            continue
        layers = [layer.value for layer in entry.items("network_layers") if layer.check_type(str)]
        host = entry.text("id", required=True)
        reading.add_host(LocatedHost(host, tuple(layers), _nvlink_domain(entry), entry.span))


def _nvlink_domain(entry: DocumentNode) -> str | None:
    """Return the NVLink domain of an instance or a block; None if the entry has no domain.

    The domain is read from the labels, the annotations or, in old topograph models, from the key
    ``nvlink``.
    """
    for labels in (entry.mapping("labels"), entry.mapping("annotations")):
        for key in sorted(labels.value) if labels is not None else ():
            prefix, _, last = key.rpartition("/")
            is_domain = last == "accelerator" or (last in _DOMAINS and "accel" in prefix)
            if is_domain and labels is not None:
                return labels.text(key) or None
    return entry.text("nvlink") or None


def _read_topology_model(root: DocumentNode, reading: Reading) -> None:
    switches: dict[str, SwitchEntry] = {}
    leaf_of_block: dict[str, str] = {}
    for name, entry in _switch_entries(root):
        switch = SwitchEntry(name, entry.span)
        listed = entry.items("switches", required=False)
        switch.children = [child.value for child in listed if child.check_type(str)]
        for block in entry.items("capacity_blocks", required=False):
            if block.check_type(str):
                leaf_of_block[block.value] = name
        if switches.setdefault(name, switch) is not switch:
            cause = Cause("", "first entry", switches[name].span)
            finding = Finding(f"duplicate switch {name[:60]}", causes=(cause,))
            reading.report_error("I03", finding, entry.span)
    blocks = _read_blocks(root, leaf_of_block, reading)
    for leaf, hosts, _ in blocks:
        switches.setdefault(leaf, SwitchEntry(leaf, reading.span())).hosts += hosts
    # After the blocks were added, because a block may name a leaf that has no entry.
    paths = leaf_paths(_with_implied_switches(switches), reading)
    for leaf, hosts, block in blocks:
        domain = _nvlink_domain(block)
        for host in hosts:
            reading.add_host(LocatedHost(host, paths.get(leaf, (leaf,)), domain, block.span))


def _with_implied_switches(switches: dict[str, SwitchEntry]) -> dict[str, SwitchEntry]:
    """Return ``switches`` with entries for switches that are listed only as children."""
    for switch in list(switches.values()):
        for child in switch.children:
            switches.setdefault(child, SwitchEntry(child, switch.span))
    return switches


def _switch_entries(root: DocumentNode) -> list[tuple[str, DocumentNode]]:
    found = root.child("switches")
    if found is None:
        root.report_missing("switches")
        return []
    if isinstance(found.value, dict):
        entries = [(str(key), found.child(str(key))) for key in found.value]
        return [
            (key, entry) for key, entry in entries if entry is not None and entry.check_type(dict)
        ]
    listed = [entry for entry in found.items() if entry.check_type(dict)]
    return [(entry.text("name", required=True), entry) for entry in listed]


def _read_blocks(
    root: DocumentNode, leaf_of_block: dict[str, str], reading: Reading
) -> list[tuple[str, list[str], DocumentNode]]:
    """Return (leaf switch, host names, entry in the file) of every block.

    Reports a block without a switch (I02).
    """
    found = []
    entries = root.items("blocks", required=False) + root.items("capacity_blocks", required=False)
    for entry in entries:
        if not entry.check_type(dict):
            continue
        leaf = entry.text("switch") or leaf_of_block.get(entry.text("name"), "")
        if not leaf:
            finding = Finding(f"block {entry.text('name')[:60]} has no switch")
            reading.report_error("I02", finding, entry.span)
            continue
        nodes = [node for node in entry.items("nodes") if node.check_type(str)]
        hosts = [host for node in nodes for host in reading.expand_host_list(node.value, node.span)]
        found.append((leaf, hosts, entry))
    return found
