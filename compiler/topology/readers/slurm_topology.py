"""Slurm: topology.conf (tree and block) and what ``scontrol show topology`` prints.

Format: https://slurm.schedmd.com/topology.conf.html. Keys in any case; ``#`` starts a comment, a
backslash at the end joins lines. ``scontrol`` adds Level, BlockIndex and the hosts beneath every
upper switch, and aggregated blocks; none of these says more than the leaves do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.topology.readers.fragment import Fragment, Located
from parc.compiler.topology.readers.reading import Reading
from parc.compiler.topology.readers.slurm_yaml import read_topology_yaml
from parc.compiler.topology.readers.switch_tree import Switch, leaf_paths

_PAIR = re.compile(r"(?<!\w)(\w{1,40})=(\S*)")
_REAL_NAME = re.compile(r"\s*#\s*([\w.-]+)=(.+)")
_KEYS = {
    "switchname": {"switches", "nodes", "linkspeed", "level"},
    "blockname": {"nodes", "blockindex", "blocksize"},
    "blocksizes": set[str](),
    "aggregatedblock": {"nodes", "blockindex", "blocksize"},
}
"""First key of an entry -> the others that it may have."""


@dataclass(frozen=True, slots=True)
class Value:
    """What stands after ``=``, and where."""

    text: str
    span: Span
    key: str
    key_span: Span


Entry = dict[str, Value]


def read_slurm_topology(text: str, name: str, sink: Sink) -> Fragment | None:
    """Racks from Slurm's topology: leaf switches, or blocks; the switches above them are tiers."""
    if is_yaml(text):
        return read_topology_yaml(text, name, sink)
    return read_conf(Reading(text, name, sink), {})


def is_yaml(text: str) -> bool:
    """Whether the first line that says something starts a YAML document or a list."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first == "---" or first.startswith(("- ", "--- ", "[", "{"))


def read_conf(reading: Reading, real_names: dict[str, str]) -> Fragment | None:
    """The ``key=value`` form; ``real_names`` are used where a switch or block has one."""
    switches: dict[str, Switch] = {}
    blocks: dict[str, Switch] = {}
    for first, entry in _entries(reading):
        if first == "switchname":
            _add_switch(entry, switches, reading)
        elif first == "blockname":
            _add_block(entry, blocks, reading)
        elif first == "blocksizes":
            _check_sizes(entry["blocksizes"], reading)
    if switches and blocks:
        finding = Finding("switches and blocks in one file", "Slurm reads one of the two plugins")
        reading.refuse("I03", finding, next(iter(blocks.values())).span)
    paths = leaf_paths(switches, reading) if switches else {block: (block,) for block in blocks}
    for leaf, path in paths.items():
        origin = switches.get(leaf) or blocks[leaf]
        named = tuple(real_names.get(part, part) for part in path)
        for host in origin.hosts:
            reading.place(Located(host, named, None, origin.span))
    if not reading.hosts and reading.sound:
        reading.refuse("I02", "no SwitchName or BlockName with Nodes in this file", reading.span())
    return reading.fragment()


def real_names(text: str) -> dict[str, str]:
    """``# switch.1.1=leaf-1`` comments of topograph: the name in the file -> the real one."""
    found = (_REAL_NAME.fullmatch(line) for line in text.splitlines())
    return {match[1]: match[2].strip() for match in found if match}


def _entries(reading: Reading) -> Iterator[tuple[str, Entry]]:
    """(first key in small letters, its pairs) of every entry; I01 for a line that is none."""
    entry: Entry = {}
    for line in reading.lines():
        text = line.text.partition("#")[0].rstrip()
        joined = text.endswith("\\")
        _pairs(line.number, text.removesuffix("\\"), entry, reading)
        if entry and not joined:
            yield from _known(entry, reading)
            entry = {}
    if entry:
        yield from _known(entry, reading)


def _pairs(number: int, text: str, entry: Entry, reading: Reading) -> None:
    end = 0
    for match in _PAIR.finditer(text):
        _refuse_rest(number, text[end : match.start()], end, reading)
        end = match.end()
        key_span = reading.span(number, match.start() + 1, len(match[1]))
        span = reading.span(number, match.start(2) + 1, len(match[2]))
        if match[1].lower() in entry:
            cause = Cause("", "first here", entry[match[1].lower()].key_span)
            finding = Finding(f"{match[1][:40]} is written twice", causes=(cause,))
            reading.refuse("I01", finding, key_span)
        entry[match[1].lower()] = Value(match[2], span, match[1], key_span)
    _refuse_rest(number, text[end:], end, reading)


def _refuse_rest(number: int, rest: str, start: int, reading: Reading) -> None:
    words = rest.strip()
    if words:
        column = start + rest.index(words[0]) + 1
        finding = Finding(f"{words[:40]!r} is no key=value", help="SwitchName=leaf1 Nodes=n[1-8]")
        reading.refuse("I01", finding, reading.span(number, column, len(words)))


def _known(entry: Entry, reading: Reading) -> Iterator[tuple[str, Entry]]:
    first = next(iter(entry))
    if first not in _KEYS:
        legal = "an entry starts with SwitchName, BlockName or BlockSizes"
        finding = Finding(f"{entry[first].key[:40]} starts no entry", help=legal)
        reading.refuse("I01", finding, entry[first].key_span)
        return
    for key in entry.keys() - {first} - _KEYS[first]:
        finding = Finding(f"{entry[key].key[:40]} is not read", "no key of this entry")
        reading.say("I04", finding, entry[key].key_span)
    yield first, entry


def _add_switch(entry: Entry, switches: dict[str, Switch], reading: Reading) -> None:
    for name in reading.names(entry["switchname"].text, entry["switchname"].span):
        switch = Switch(name, entry["switchname"].span)
        if name in switches:
            _refuse_twice("switch", name, switches[name], switch.span, reading)
        elif "switches" in entry:
            switch.children = reading.names(entry["switches"].text, entry["switches"].span)
        elif "nodes" in entry:
            switch.hosts = reading.names(entry["nodes"].text, entry["nodes"].span)
        else:
            message = f"switch {name[:60]} has neither Nodes nor Switches"
            reading.refuse("I02", Finding(message, "nothing is under it"), switch.span)
        switches.setdefault(name, switch)


def _add_block(entry: Entry, blocks: dict[str, Switch], reading: Reading) -> None:
    for name in reading.names(entry["blockname"].text, entry["blockname"].span):
        block = Switch(name, entry["blockname"].span)
        if name in blocks:
            _refuse_twice("block", name, blocks[name], block.span, reading)
        elif "nodes" in entry:
            block.hosts = reading.names(entry["nodes"].text, entry["nodes"].span)
        else:
            message = f"block {name[:60]} has no Nodes"
            reading.refuse("I02", Finding(message, "nothing is in it"), block.span)
        blocks.setdefault(name, block)


def _refuse_twice(kind: str, name: str, first: Switch, span: Span, reading: Reading) -> None:
    cause = Cause("", "first here", first.span)
    finding = Finding(f"{kind} {name[:60]} is described twice", "again here", causes=(cause,))
    reading.refuse("I03", finding, span)


def _check_sizes(value: Value, reading: Reading) -> None:
    """Slurm does not start where a block size is no power of two times the one before."""
    sizes = value.text.split(",")
    numbers = [int(size) for size in sizes if re.fullmatch(r"[0-9]{1,9}", size)]
    if len(numbers) < len(sizes) or 0 in numbers:
        finding = Finding(f"BlockSizes {value.text[:60]!r} are no numbers", help="18,36")
        reading.refuse("I01", finding, value.span)
        return
    for smaller, larger in pairwise(numbers):
        ratio = larger // smaller
        if larger % smaller or ratio < 2 or ratio & (ratio - 1):
            finding = Finding(
                f"block size {larger} is no power of two times {smaller}",
                label=f"{larger} / {smaller} = {larger / smaller:g}",
                help=f"legal after {smaller}: {smaller * 2}, {smaller * 4}, {smaller * 8}",
            )
            reading.refuse("I03", finding, value.span)
