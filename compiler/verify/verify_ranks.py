"""Compare the rank map with the hosts it names and with the framework's own arithmetic."""

from __future__ import annotations

from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.derived_groups import Groups, RankMap, Told
from parc.compiler.verify.read_emitted import PLACE, TABLE

SHOWN = 4
"""Ranks that a finding names."""

Table = dict[str, list[str]]


def verify_hosts(table: Table, sink: Sink, devices: list[str] | None = None) -> list[str]:
    """Every rank has one device and every device one rank; returns the hosts by node rank.

    ``devices`` is what a launch script makes visible, in the order of local ranks.
    """
    world = len(table["rank"])
    each = max(1, table["node_rank"].count(table["node_rank"][0]))
    hosts = table["host"][::each]
    local = [str(rank % each) for rank in range(world)]
    known = devices is not None and len(set(devices)) == len(devices) == each
    gpus = [devices[rank % each] for rank in range(world)] if devices and known else local
    expected = {
        "rank": [str(rank) for rank in range(world)],
        "node_rank": [str(rank // each) for rank in range(world)],
        "host": [hosts[rank // each] for rank in range(world)],
        "local_rank": local,
        "gpu": gpus,
        "rack": [table["rack"][rank - rank % each] for rank in range(world)],
        "nvlink_domain": [table["nvlink_domain"][rank - rank % each] for rank in range(world)],
    }
    for column, values in expected.items():
        _compare("A05", column, table[column], values, sink)
    if world % each:
        sink.report("A05", f"{world} ranks are not {each} on every host", span=_line(1))
    _report_twins(hosts, each, sink)
    return hosts


def _report_twins(hosts: list[str], each: int, sink: Sink) -> None:
    """A host that stands under two node ranks: two ranks would share its GPUs."""
    seen: dict[str, int] = {}
    for node, host in enumerate(hosts):
        if host in seen:
            message = f"node ranks {seen[host]} and {node} are both on host {host}"
            sink.report("A05", message, span=_line(node * each + 2))
            return
        seen[host] = node


def verify_coordinates(table: Table, told: Told, sink: Sink) -> None:
    """A01 where a coordinate is not the rank's place in its group."""
    for column in told.columns:
        if column not in table:
            sink.report("A01", f"the rank map has no column {column}", span=_line(1))
            continue
        expected = [str(place) for place in coordinates(told.families[column])]
        _compare("A01", column, table[column], expected, sink)


def coordinates(groups: Groups) -> list[int]:
    """By rank: its place in its group, whose members are evenly spaced."""
    size = len(groups.members)
    column = [0] * (size * len(groups.bases))
    if size == 1:
        return column
    step = groups.members[1]
    places = range(size)
    for base in groups.bases:
        column[base : base + size * step : step] = places
    return column


def rank_map(table: Table, hosts: list[str]) -> RankMap:
    """The rank map as its rows have it; ``hosts`` by node rank."""
    world, each = len(table["rank"]), len(table["rank"]) // max(1, len(hosts))
    columns = {name: _numbers(cells) for name, cells in table.items() if name not in PLACE}
    return RankMap(world, hosts, table["rack"][::each], table["nvlink_domain"][::each], columns)


def _numbers(cells: list[str]) -> list[int] | None:
    """The numbers that ``cells`` are, each as it is commonly written; None where one is not."""
    numbers = [int(cell) if cell.isdecimal() and len(cell) < 10 else -1 for cell in cells]
    return numbers if list(map(str, numbers)) == cells else None


def verify_document(tree: dict[str, Any], found: RankMap, sink: Sink) -> None:
    """A06 where rankmap.json says something else than rankmap.csv."""
    for key, value in (("world", found.world), ("ranks_per_node", found.ranks_per_node)):
        if tree.get(key) != value:
            _differs(f"{key} is {tree.get(key)!r:.40}, rankmap.csv has {value}", sink)
    named = [
        {"name": name, "rack": rack, "nvlink_domain": domain}
        for name, rack, domain in zip(found.hosts, found.racks, found.domains, strict=False)
    ]
    if tree["hosts"] != named:
        _differs("the hosts differ from those of rankmap.csv", sink)
    for column, places in found.columns.items():
        values = tree["ranks"].get(column)
        # 1.0 and true equal 1 and are no coordinates
        if values != places or not values or set(map(type, values)) != {int}:
            _differs(f"ranks.{column} differs from the column {column} of rankmap.csv", sink)


def verify_groups(tree: dict[str, Any], told: Told, sink: Sink) -> None:
    """A06 where sizes or groups of rankmap.json are not those that the framework builds."""
    if any(tree["sizes"].get(name) != size for name, size in told.sizes.items()):
        _differs(f"sizes are not those of {told.file}: {told.sizes}", sink)
    if tree.get("order") != told.order:
        _differs(f"order is {tree.get('order')!r:.60}, {told.file} asks for {told.order}", sink)
    for family, expected in told.families.items():
        if _stated(tree["groups"].get(family), expected) != expected:
            ranks = [expected.bases[0] + member for member in expected.members[:SHOWN]]
            first = ", ".join(map(str, ranks))
            text = f"groups.{family} is not what {told.builder} builds (first group: {first} ...)"
            _differs(text, sink)


def _stated(entry: Any, expected: Groups) -> Groups | None:
    """Groups that an entry of rankmap.json stands for; None where it is damaged."""
    if not isinstance(entry, dict):
        return None
    if (entry.get("size"), entry.get("count")) != (len(expected.members), len(expected.bases)):
        return None
    members = reach(entry.get("within"), len(expected.members))
    bases = reach(entry.get("across"), len(expected.bases))
    return None if members is None or bases is None else Groups(members, bases)


def reach(pairs: Any, size: int) -> list[int] | None:
    """Offsets reached along [size, stride] pairs; None unless they are ``size`` numbers."""
    if not isinstance(pairs, list):
        return None
    offsets = [0]
    for pair in pairs:
        if not _is_pair(pair) or len(offsets) * pair[0] > size:
            return None
        offsets = [offset + step * pair[1] for step in range(pair[0]) for offset in offsets]
    return offsets if len(offsets) == size else None


def _is_pair(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(number) is int and 0 < number < 2**40 for number in pair)
    )


def _compare(code: str, column: str, actual: list[str], expected: list[str], sink: Sink) -> None:
    """One finding a column, at its first wrong rank."""
    if actual == expected:
        return
    wrong = [n for n, pair in enumerate(zip(actual, expected, strict=True)) if pair[0] != pair[1]]
    first = [f"rank {n} has {actual[n]!r:.40}, must be {expected[n]!r:.40}" for n in wrong[:SHOWN]]
    message = f"{len(wrong)} of {len(actual)} ranks have a wrong {column}"
    sink.report(code, Finding(message, "; ".join(first)), span=_line(wrong[0] + 2))


def _differs(message: str, sink: Sink) -> None:
    sink.report("A06", message, span=Span("rankmap.json", 1, 1))


def _line(number: int) -> Span:
    return Span(TABLE, number, 1)
