"""Switches with lists of their children -> path from every leaf to its root."""

from __future__ import annotations

from dataclasses import dataclass, field

from parc.compiler.diagnostics import Cause, Finding, Span
from parc.compiler.topology.readers.reader_state import Reading, some

MOST_TIERS = 16
"""Limit on the tiers of a tree. The deepest fabrics have four or five."""


@dataclass(slots=True)
class Switch:
    """Switch of a tree, with its child switches and its hosts, as a file lists them."""

    name: str
    span: Span
    children: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


def leaf_paths(switches: dict[str, Switch], reading: Reading) -> dict[str, tuple[str, ...]]:
    """Return the path of every leaf: its switches from the leaf to the root.

    All paths have the same length: if a leaf is connected directly to a higher tier, its own name
    replaces the missing switches. Reports a child that is unknown or has two parents, and a cycle
    (I03); reports leaves without a common root (I07).
    """
    parents = _parents(switches, reading)
    paths: dict[str, tuple[str, ...]] = {}
    for switch in switches.values():
        if switch.hosts:
            paths[switch.name] = _path_to_root(switch, parents, reading)
    roots = sorted({path[-1] for path in paths.values()})
    if len(roots) > 1 and reading.sound:
        finding = Finding(
            f"no common switch above {some(roots)}",
            label="a job across separate trees would use links that the file does not contain",
            help="add the switch above these switches, or keep one part of the file",
        )
        reading.say("I07", finding, switches[roots[1]].span)
    # All hosts of a cluster must have equally many levels (``Host.above``).
    depth = max(map(len, paths.values()), default=0)
    return {name: (name,) * (depth - len(path)) + path for name, path in paths.items()}


def _parents(switches: dict[str, Switch], reading: Reading) -> dict[str, Switch]:
    """Return the parent of every switch; report an unknown child or a second parent (I03)."""
    parents: dict[str, Switch] = {}
    for switch in switches.values():
        for child in switch.children:
            if child not in switches:
                message = f"switch {switch.name[:60]} has an unknown child {child[:60]}"
                reading.refuse("I03", Finding(message, "no such switch"), switch.span)
            elif parents.setdefault(child, switch) is not switch:
                other = parents[child]
                finding = Finding(
                    f"switch {child[:60]} has two parents: {other.name[:60]}, {switch.name[:60]}",
                    label="second parent",
                    help="a switch of a tree can have only one parent",
                    causes=(Cause("", "first parent", other.span),),
                )
                reading.refuse("I03", finding, switch.span)
    return parents


def _path_to_root(leaf: Switch, parents: dict[str, Switch], reading: Reading) -> tuple[str, ...]:
    """Return the switches from ``leaf`` to its root; report a cycle or too many tiers (I03)."""
    path = [leaf.name]
    while (above := parents.get(path[-1])) is not None:
        if above.name in path or len(path) == MOST_TIERS:
            problem = "a cycle" if above.name in path else f"more than {MOST_TIERS} tiers"
            message = f"the switches above {leaf.name[:60]} have {problem}"
            reading.refuse(
                "I03", Finding(message, f"{above.name[:60]} is above {leaf.name[:60]}"), above.span
            )
            break
        path.append(above.name)
    return tuple(path)
