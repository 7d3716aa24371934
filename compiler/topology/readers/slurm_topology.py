"""Readers of Slurm's two topology file formats: topology.conf and topology.yaml.

topology.conf (tree and block) and ``scontrol show topology``
(https://slurm.schedmd.com/topology.conf.html): keys are case-insensitive, ``#`` starts a comment,
and a backslash at the end joins lines. ``scontrol`` adds Level, BlockIndex, the hosts below every
upper switch and aggregated blocks; these are ignored, because they follow from the leaves.

topology.yaml (https://slurm.schedmd.com/topology.yaml.html): a list of topologies of type tree,
block, ring, torus3d or flat; one of them is the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.readers.document import DocumentNode, read_document
from parc.compiler.topology.readers.reader_state import (
    Fragment,
    LocatedHost,
    Reading,
    summarize_names,
)
from parc.compiler.topology.readers.switch_tree import SwitchEntry, leaf_paths

_PAIR = re.compile(r"(?<!\w)(\w{1,40})=(\S*)")
_REAL_NAME = re.compile(r"\s*#\s*([\w.-]+)=(.+)")
_KEYS = {
    "switchname": {"switches", "nodes", "linkspeed", "level"},
    "blockname": {"nodes", "blockindex", "blocksize"},
    "blocksizes": set[str](),
    "aggregatedblock": {"nodes", "blockindex", "blocksize"},
}
"""First key of an entry -> other keys that the entry can contain."""


@frozen
class KeyValue:
    """Key and value of a ``key=value`` pair, with their positions."""

    text: str
    span: Span
    key: str
    key_span: Span


Entry = dict[str, KeyValue]


def read_slurm_topology(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read a Slurm topology: racks from leaf switches or blocks, tiers from higher switches."""
    if is_yaml_or_json(text):
        return read_topology_yaml(text, name, sink)
    return read_topology_conf(Reading(text, name, sink), {})


def is_yaml_or_json(text: str) -> bool:
    """Return True if the first line of ``text`` that is not a comment looks like YAML or JSON."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first == "---" or first.startswith(("- ", "--- ", "[", "{"))


def read_topology_conf(reading: Reading, real_names: dict[str, str]) -> Fragment | None:
    """Read topology.conf, a Slurm topology of ``key=value`` pairs.

    ``real_names`` maps names of switches and blocks in the file to the names to use instead.
    """
    switches: dict[str, SwitchEntry] = {}
    blocks: dict[str, SwitchEntry] = {}
    for first, entry in _conf_entries(reading):
        if first == "switchname":
            _add_switch(entry, switches, reading)
        elif first == "blockname":
            _add_block(entry, blocks, reading)
        elif first == "blocksizes":
            _check_block_sizes(entry["blocksizes"], reading)
    if switches and blocks:
        finding = Finding(
            "the file has both switches and blocks", "Slurm uses either switches or blocks"
        )
        reading.report_error("I03", finding, next(iter(blocks.values())).span)
    # Blocks have no switches above them, so the path of a block has a single element.
    paths = leaf_paths(switches, reading) if switches else {block: (block,) for block in blocks}
    for leaf, path in paths.items():
        origin = switches.get(leaf) or blocks[leaf]
        named = tuple(real_names.get(part, part) for part in path)
        for host in origin.hosts:
            reading.add_host(LocatedHost(host, named, None, origin.span))
    if not reading.hosts and reading.is_valid:
        reading.report_error(
            "I02", "the file has no SwitchName or BlockName with Nodes", reading.span()
        )
    return reading.fragment()


def read_real_names(text: str) -> dict[str, str]:
    """Return the real name of each switch and block that topograph renamed in topology.conf.

    The real names are in comments such as ``# switch.1.1=leaf-1``.
    """
    found = (_REAL_NAME.fullmatch(line) for line in text.splitlines())
    return {match[1]: match[2].strip() for match in found if match}


def _conf_entries(reading: Reading) -> Iterator[tuple[str, Entry]]:
    """Yield (first key in lower case, values by key) for each entry of topology.conf.

    Reports lines that are not valid entries (I01).
    """
    entry: Entry = {}
    for line in reading.lines():
        text = line.text.partition("#")[0].rstrip()
        # A backslash continues the entry on the next line.
        joined = text.endswith("\\")
        _add_key_values(line.number, text.removesuffix("\\"), entry, reading)
        if entry and not joined:
            yield from _check_entry_keys(entry, reading)
            entry = {}
    if entry:
        yield from _check_entry_keys(entry, reading)


def _add_key_values(number: int, text: str, entry: Entry, reading: Reading) -> None:
    end = 0
    for match in _PAIR.finditer(text):
        _report_unrecognized_text(number, text[end : match.start()], end, reading)
        end = match.end()
        key_span = reading.span(number, match.start() + 1, len(match[1]))
        span = reading.span(number, match.start(2) + 1, len(match[2]))
        if match[1].lower() in entry:
            cause = Cause("", "first entry", entry[match[1].lower()].key_span)
            finding = Finding(f"duplicate key {match[1][:40]}", causes=(cause,))
            reading.report_error("I01", finding, key_span)
        entry[match[1].lower()] = KeyValue(match[2], span, match[1], key_span)
    _report_unrecognized_text(number, text[end:], end, reading)


def _report_unrecognized_text(number: int, rest: str, start: int, reading: Reading) -> None:
    words = rest.strip()
    if words:
        column = start + rest.index(words[0]) + 1
        finding = Finding(
            "this part of the line is not key=value", help="example: SwitchName=leaf1 Nodes=n[1-8]"
        )
        reading.report_error("I01", finding, reading.span(number, column))


def _check_entry_keys(entry: Entry, reading: Reading) -> Iterator[tuple[str, Entry]]:
    first = next(iter(entry))
    if first not in _KEYS:
        valid = "valid first keys: SwitchName, BlockName, BlockSizes"
        finding = Finding(f"{entry[first].key[:40]} is not the start of an entry", help=valid)
        reading.report_error("I01", finding, entry[first].key_span)
        return
    for key in entry.keys() - {first} - _KEYS[first]:
        finding = Finding(
            f"key {entry[key].key[:40]} is ignored",
            f"a {entry[first].key[:40]} entry has no such key",
        )
        reading.report("I04", finding, entry[key].key_span)
    yield first, entry


def _add_switch(entry: Entry, switches: dict[str, SwitchEntry], reading: Reading) -> None:
    for name in reading.expand_host_list(entry["switchname"].text, entry["switchname"].span):
        switch = SwitchEntry(name, entry["switchname"].span)
        if name in switches:
            _report_duplicate("switch", name, switches[name], switch.span, reading)
        elif "switches" in entry:
            switch.children = reading.expand_host_list(
                entry["switches"].text, entry["switches"].span
            )
        elif "nodes" in entry:
            switch.hosts = reading.expand_host_list(entry["nodes"].text, entry["nodes"].span)
        else:
            message = f"switch {name[:60]} has neither Nodes nor Switches"
            reading.report_error("I02", Finding(message, "switch without hosts"), switch.span)
        switches.setdefault(name, switch)


def _add_block(entry: Entry, blocks: dict[str, SwitchEntry], reading: Reading) -> None:
    for name in reading.expand_host_list(entry["blockname"].text, entry["blockname"].span):
        block = SwitchEntry(name, entry["blockname"].span)
        if name in blocks:
            _report_duplicate("block", name, blocks[name], block.span, reading)
        elif "nodes" in entry:
            block.hosts = reading.expand_host_list(entry["nodes"].text, entry["nodes"].span)
        else:
            message = f"block {name[:60]} has no Nodes"
            reading.report_error("I02", Finding(message, "block without hosts"), block.span)
        blocks.setdefault(name, block)


def _report_duplicate(
    kind: str, name: str, first: SwitchEntry, span: Span, reading: Reading
) -> None:
    cause = Cause("", "first entry", first.span)
    finding = Finding(f"duplicate {kind} {name[:60]}", "second entry", causes=(cause,))
    reading.report_error("I03", finding, span)


def _check_block_sizes(value: KeyValue, reading: Reading) -> None:
    """Report block sizes that Slurm rejects.

    Each block size must be the previous block size times a power of two.
    """
    sizes = value.text.split(",")
    numbers = [int(size) for size in sizes if re.fullmatch(r"[0-9]{1,9}", size)]
    if len(numbers) < len(sizes) or 0 in numbers:
        finding = Finding(
            f"BlockSizes {value.text[:60]!r} is not a list of positive numbers",
            help="example: 18,36",
        )
        reading.report_error("I01", finding, value.span)
        return
    for smaller, larger in pairwise(numbers):
        ratio = larger // smaller
        if larger % smaller or ratio < 2 or ratio & (ratio - 1):
            finding = Finding(
                f"block size {larger} is not a power of two times {smaller}",
                label=f"{larger} / {smaller} = {larger / smaller:g}",
                help=f"valid values after {smaller}: {smaller * 2}, {smaller * 4}, {smaller * 8}",
            )
            reading.report_error("I03", finding, value.span)


_GROUPS = {
    "block": ("blocks", "block"),
    "ring": ("rings", "ring"),
    "torus3d": ("toruses", "name"),
}
"""Topology plugin without switches -> (key of the list of groups, key of the name of a group)."""


def read_topology_yaml(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read the racks of the default topology in topology.yaml.

    If there is no default topology, the first one is read. A warning (I04) lists the topologies
    that are ignored.
    """
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None:
        return None
    chosen = _default_topology(root, reading)
    if chosen is not None:
        _read_topology(chosen, reading)
        if not reading.hosts and reading.is_valid:
            message = f"topology {chosen.text('topology')[:60]} has no hosts"
            reading.report_error(
                "I02",
                Finding(
                    message,
                    help="PARC reads hosts from the nodes of a tree, blocks, rings or toruses",
                ),
                chosen.span,
            )
    return reading.fragment()


def _default_topology(root: DocumentNode, reading: Reading) -> DocumentNode | None:
    topologies = [entry for entry in root.items() if entry.check_type(dict)]
    if not topologies:
        reading.report_error("I02", "the file has no topologies", reading.span())
        return None
    default = (one for one in topologies if one.value.get("cluster_default") is True)
    chosen = next(default, topologies[0])
    others = [one.text("topology") for one in topologies if one is not chosen]
    if others:
        finding = Finding(
            f"other topologies are ignored: {summarize_names(others)}",
            label=f"{chosen.text('topology')[:60]} is used",
            help="PARC reads the topology with cluster_default: true, or else the first topology",
        )
        reading.report("I04", finding, chosen.span)
    return chosen


def _read_topology(chosen: DocumentNode, reading: Reading) -> None:
    tree = chosen.mapping("tree")
    if tree is not None:
        _read_tree(tree, reading)
    for plugin, (listed, named) in _GROUPS.items():
        groups = chosen.mapping(plugin)
        for group in groups.items(listed) if groups is not None else ():
            _read_host_group(group, group.text(named, required=True), reading)
        if groups is not None and plugin in ("ring", "torus3d"):
            reading.notes.append(
                f"each {plugin} becomes a rack; the order of the hosts inside it is not used"
            )


def _read_host_group(group: DocumentNode, name: str, reading: Reading) -> None:
    for host in _host_names(group, reading):
        reading.add_host(LocatedHost(host, (name,), None, group.span))


def _host_names(node: DocumentNode, reading: Reading) -> list[str]:
    found = node.child("nodes")
    return reading.expand_host_list(node.text("nodes"), found.span) if found is not None else []


def _read_tree(tree: DocumentNode, reading: Reading) -> None:
    switches: dict[str, SwitchEntry] = {}
    for entry in tree.items("switches"):
        name = entry.text("switch", required=True)
        children = entry.child("children")
        switch = SwitchEntry(name, entry.span)
        if children is not None:
            switch.children = reading.expand_host_list(entry.text("children"), children.span)
        switch.hosts = _host_names(entry, reading)
        known = switches.setdefault(name, switch)
        if known is not switch:
            cause = Cause("", "first entry", known.span)
            finding = Finding(f"duplicate switch {name[:60]}", causes=(cause,))
            reading.report_error("I03", finding, entry.span)
    for leaf, path in leaf_paths(switches, reading).items():
        for host in switches[leaf].hosts:
            reading.add_host(LocatedHost(host, path, None, switches[leaf].span))
