"""Tree of switches: the path from every leaf switch to the root, from lists of child switches."""

from __future__ import annotations

from dataclasses import dataclass, field

from parc.compiler.diagnostics import Cause, Finding, Span
from parc.compiler.topology.readers.reader_state import Reading, summarize_names

MOST_TIERS = 16
"""Limit on the tiers of a tree. The deepest fabrics have four or five."""


@dataclass(slots=True)
class SwitchEntry:
    """Switch of a tree, with its child switches and its hosts, as a file lists them."""

    name: str
    span: Span
    children: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


def leaf_paths(switches: dict[str, SwitchEntry], reading: Reading) -> dict[str, tuple[str, ...]]:
    """Return, for each leaf switch, the names of the switches from the leaf to the root.

    All paths have the same length: if a leaf is connected directly to a higher tier, the name of
    the leaf is repeated. Reports unknown children, switches with two parents, and cycles (I03), and
    leaves without a common root (I07).
    """
    parents = _parent_by_switch(switches, reading)
    paths: dict[str, tuple[str, ...]] = {}
    for switch in switches.values():
        if switch.hosts:
            paths[switch.name] = _path_to_root(switch, parents, reading)
    roots = sorted({path[-1] for path in paths.values()})
    if len(roots) > 1 and reading.is_valid:
        finding = Finding(
            f"no common switch above {summarize_names(roots)}",
            label="a job across separate trees would use links that the file does not contain",
            help="add the switch above these switches, or keep one part of the file",
        )
        reading.report("I07", finding, switches[roots[1]].span)
    # All hosts of a cluster must have the same number of switches above them (``Host.above``).
    depth = max(map(len, paths.values()), default=0)
    return {name: (name,) * (depth - len(path)) + path for name, path in paths.items()}


def _parent_by_switch(switches: dict[str, SwitchEntry], reading: Reading) -> dict[str, SwitchEntry]:
    """Return the parent of every switch, by name.

    Reports unknown children and switches with two parents (I03).
    """
    parents: dict[str, SwitchEntry] = {}
    for switch in switches.values():
        for child in switch.children:
            if child not in switches:
                message = f"switch {switch.name[:60]} has an unknown child {child[:60]}"
                reading.report_error("I03", Finding(message, "unknown child switch"), switch.span)
            elif parents.setdefault(child, switch) is not switch:
                other = parents[child]
                finding = Finding(
                    f"switch {child[:60]} has two parents: {other.name[:60]}, {switch.name[:60]}",
                    label="second parent",
                    help="a switch of a tree can have only one parent",
                    causes=(Cause("", "first parent", other.span),),
                )
                reading.report_error("I03", finding, switch.span)
    return parents


def _path_to_root(
    leaf: SwitchEntry, parents: dict[str, SwitchEntry], reading: Reading
) -> tuple[str, ...]:
    """Return the names of the switches from ``leaf`` to the root.

    Reports a cycle, or more than MOST_TIERS tiers (I03).
    """
    path = [leaf.name]
    while (above := parents.get(path[-1])) is not None:
        if above.name in path or len(path) == MOST_TIERS:
            problem = "a cycle" if above.name in path else f"more than {MOST_TIERS} tiers"
            message = f"the switches above {leaf.name[:60]} have {problem}"
            reading.report_error(
                "I03", Finding(message, f"{above.name[:60]} is above {leaf.name[:60]}"), above.span
            )
            break
        path.append(above.name)
    return tuple(path)
