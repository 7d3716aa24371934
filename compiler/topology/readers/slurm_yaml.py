"""Reader of Slurm's topology.yaml: a list of topologies, one of them the default.

Format: https://slurm.schedmd.com/topology.yaml.html: tree, block, ring, torus3d or flat.
"""

from __future__ import annotations

from parc.compiler.diagnostics import Cause, Finding, Sink
from parc.compiler.topology.readers.document import Node, read_document
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading, some
from parc.compiler.topology.readers.switch_tree import Switch, leaf_paths

_GROUPS = {
    "block": ("blocks", "block"),
    "ring": ("rings", "ring"),
    "torus3d": ("toruses", "name"),
}
"""Plugin without switches -> key of its list of groups, key of the name of a group."""


def read_topology_yaml(text: str, name: str, sink: Sink) -> Fragment | None:
    """Read the racks of the default topology, else of the first; I04 lists the other ones."""
    reading = Reading(text, name, sink)
    root = read_document(reading)
    if root is None:
        return None
    chosen = _chosen(root, reading)
    if chosen is not None:
        _read(chosen, reading)
        if not reading.hosts and reading.sound:
            message = f"topology {chosen.text('topology')[:60]} has no hosts"
            reading.refuse("I02", Finding(message, help="tree or block with nodes"), chosen.span)
    return reading.fragment()


def _chosen(root: Node, reading: Reading) -> Node | None:
    topologies = [entry for entry in root.items() if entry.wants(dict)]
    if not topologies:
        reading.refuse("I02", "the file has no topologies", reading.span())
        return None
    default = (one for one in topologies if one.value.get("cluster_default") is True)
    chosen = next(default, topologies[0])
    others = [one.text("topology") for one in topologies if one is not chosen]
    if others:
        finding = Finding(
            f"other topologies are ignored: {some(others)}",
            label=f"{chosen.text('topology')[:60]} is used",
            help="racks are read from the topology with cluster_default, else from the first",
        )
        reading.say("I04", finding, chosen.span)
    return chosen


def _read(chosen: Node, reading: Reading) -> None:
    tree = chosen.mapping("tree")
    if tree is not None:
        _read_tree(tree, reading)
    for plugin, (listed, named) in _GROUPS.items():
        groups = chosen.mapping(plugin)
        for group in groups.items(listed) if groups is not None else ():
            _read_group(group, group.text(named, required=True), reading)
        if groups is not None and plugin in ("ring", "torus3d"):
            reading.notes.append(
                f"{plugin}: each one becomes a rack; the order of its hosts is not used"
            )


def _read_group(group: Node, name: str, reading: Reading) -> None:
    for host in _hosts(group, reading):
        reading.place(Located(host, (name,), None, group.span))


def _hosts(node: Node, reading: Reading) -> list[str]:
    found = node.child("nodes")
    return reading.names(node.text("nodes"), found.span) if found is not None else []


def _read_tree(tree: Node, reading: Reading) -> None:
    switches: dict[str, Switch] = {}
    for entry in tree.items("switches"):
        name = entry.text("switch", required=True)
        children = entry.child("children")
        switch = Switch(name, entry.span)
        if children is not None:
            switch.children = reading.names(entry.text("children"), children.span)
        switch.hosts = _hosts(entry, reading)
        known = switches.setdefault(name, switch)
        if known is not switch:
            cause = Cause("", "first entry", known.span)
            finding = Finding(f"duplicate switch {name[:60]}", causes=(cause,))
            reading.refuse("I03", finding, entry.span)
    for leaf, path in leaf_paths(switches, reading).items():
        for host in switches[leaf].hosts:
            reading.place(Located(host, path, None, switches[leaf].span))
