"""Compare the rank map with the hosts that it names and with the groups of the framework.

First the whole text of ``rankmap.csv`` is compared with the table that the derived groups imply.
Hosts are read from the first row of each host; all other cells follow from the framework's
arithmetic. For 131,072 ranks, comparing texts takes a tenth of the time of parsing the rows. Only
if the texts differ, each cell is compared, to name the wrong ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from parc.backends.verifier import DerivedGroups, FamilyGroups
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import DOCUMENT, PLACE, TABLE, RankMap

SHOWN = 4
"""Maximum number of wrong ranks that a finding names."""

Table = dict[str, list[str]]
"""Column name of ``rankmap.csv`` -> cells as text, one per rank."""


def verify_hosts(table: Table, sink: Sink, devices: list[str] | None = None) -> list[str]:
    """Report ranks, hosts and GPUs that are not numbered consecutively (A05); return the hosts.

    The rack and the NVLink domain of a host are taken from the row of its first rank.

    Args:
        table: columns of ``rankmap.csv``.
        sink: receives one finding per wrong column.
        devices: devices that a launch script makes visible, by local rank; None: 0, 1, 2, ...

    Returns:
        Host names by node rank.
    """
    world = len(table["rank"])
    ranks = max(1, table["node_rank"].count(table["node_rank"][0]))
    hosts = table["host"][::ranks]
    local = [str(rank % ranks) for rank in range(world)]
    # A device list with repeated or missing entries cannot give each rank its own GPU.
    usable = devices is not None and len(set(devices)) == len(devices) == ranks
    gpus = [devices[rank % ranks] for rank in range(world)] if devices and usable else local
    expected = {
        "rank": [str(rank) for rank in range(world)],
        "node_rank": [str(rank // ranks) for rank in range(world)],
        "host": [hosts[rank // ranks] for rank in range(world)],
        "local_rank": local,
        "gpu": gpus,
        "rack": [table["rack"][rank - rank % ranks] for rank in range(world)],
        "nvlink_domain": [table["nvlink_domain"][rank - rank % ranks] for rank in range(world)],
    }
    for column, values in expected.items():
        _report_wrong_cells("A05", column, table[column], values, sink)
    if world % ranks:
        message = f"{world} ranks are not divisible by the {ranks} ranks of each host"
        sink.report("A05", message, span=_rank_map_position(1))
    _report_repeated_host(hosts, ranks, sink)
    return hosts


def _report_repeated_host(hosts: list[str], ranks_per_node: int, sink: Sink) -> None:
    """Report a host that has two node ranks (A05), because two ranks would share each GPU."""
    seen: dict[str, int] = {}
    for node, host in enumerate(hosts):
        if host in seen:
            message = f"node ranks {seen[host]} and {node} are both on host {host}"
            sink.report("A05", message, span=_rank_map_position(node * ranks_per_node + 2))
            return
        seen[host] = node


def verify_coordinates(table: Table, derived: DerivedGroups, sink: Sink) -> None:
    """Report each column with a coordinate that is not the index of the rank in its group (A01)."""
    for column in derived.columns:
        if column not in table:
            sink.report("A01", f"the rank map has no column {column}", span=_rank_map_position(1))
            continue
        expected = [str(place) for place in coordinates_in_groups(derived.families[column])]
        _report_wrong_cells("A01", column, table[column], expected, sink)


def coordinates_in_groups(groups: FamilyGroups) -> list[int]:
    """Return one item per rank: the index of the rank in its group.

    The ranks of a group along one axis are evenly spaced, so slices fill the list without a loop
    over ranks.
    """
    size = len(groups.members)
    column = [0] * (size * len(groups.bases))
    if size == 1:
        return column
    step = groups.members[1]
    places = range(size)
    if groups.members != list(range(0, size * step, step)):
        for base in groups.bases:
            for place, member in enumerate(groups.members):
                column[base + member] = place
        return column
    for base in groups.bases:
        column[base : base + size * step : step] = places
    return column


def build_rank_map(table: Table, hosts: list[str]) -> RankMap:
    """Return the rank map with the cells of ``table``; ``hosts`` are host names by node rank."""
    world, ranks = len(table["rank"]), len(table["rank"]) // max(1, len(hosts))
    columns = {
        name: _parse_coordinates(cells) for name, cells in table.items() if name not in PLACE
    }
    return RankMap(world, hosts, table["rack"][::ranks], table["nvlink_domain"][::ranks], columns)


def _parse_coordinates(cells: list[str]) -> list[int] | None:
    """Return ``cells`` as integers; None if a cell is not an integer or has leading zeros."""
    numbers = [int(cell) if cell.isdecimal() and len(cell) < 10 else -1 for cell in cells]
    return numbers if list(map(str, numbers)) == cells else None


def verify_document(tree: dict[str, Any], rank_map: RankMap, sink: Sink) -> None:
    """Report each part of rankmap.json that differs from rankmap.csv (A06).

    ``tree`` is the content of rankmap.json, ``rank_map`` the content of rankmap.csv.
    """
    for key, value in (("world", rank_map.world), ("ranks_per_node", rank_map.ranks_per_node)):
        if tree.get(key) != value:
            _report_difference(f"{key} is {tree.get(key)!r:.40}, {TABLE} has {value}", sink)
    named = [
        {"name": name, "rack": rack, "nvlink_domain": domain}
        for name, rack, domain in zip(
            rank_map.hosts, rank_map.racks, rank_map.domains, strict=False
        )
    ]
    if tree["hosts"] != named:
        _report_difference(f"the hosts differ from those of {TABLE}", sink)
    for column, places in rank_map.columns.items():
        values = tree["ranks"].get(column)
        # 1.0 and true equal 1 in Python, but are not coordinates
        if values != places or not values or set(map(type, values)) != {int}:
            _report_difference(f"ranks.{column} differs from the column {column} of {TABLE}", sink)


def verify_groups(tree: dict[str, Any], derived: DerivedGroups, sink: Sink) -> None:
    """Report sizes, rank order and groups in rankmap.json that differ from ``derived`` (A06).

    ``derived`` contains those that the framework's file configures.
    """
    if any(tree["sizes"].get(name) != size for name, size in derived.sizes.items()):
        _report_difference(f"sizes differ from those of {derived.file}: {derived.sizes}", sink)
    if tree.get("order") != derived.order:
        order = f"order is {tree.get('order')!r:.60}"
        _report_difference(f"{order}, but {derived.file} configures {derived.order}", sink)
    for family, expected in derived.families.items():
        if _listed_groups(tree["groups"].get(family), expected) != expected:
            ranks = [expected.bases[0] + member for member in expected.members[:SHOWN]]
            first = ", ".join(map(str, ranks))
            text = f"groups.{family} is not the set of groups that {derived.builder} builds"
            _report_difference(f"{text} (first group: {first} ...)", sink)


def _listed_groups(entry: Any, expected: FamilyGroups) -> FamilyGroups | None:
    """Return the groups that an entry of rankmap.json describes.

    Return None if the entry is damaged, or if the number or size of its groups differs from that of
    ``expected``.
    """
    if not isinstance(entry, dict):
        return None
    if (entry.get("size"), entry.get("count")) != (len(expected.members), len(expected.bases)):
        return None
    members = span_offsets(entry.get("within"), len(expected.members))
    bases = span_offsets(entry.get("across"), len(expected.bases))
    return None if members is None or bases is None else FamilyGroups(members, bases)


def span_offsets(pairs: Any, size: int) -> list[int] | None:
    """Return the rank offsets that a list of [size, stride] pairs describes.

    Return None if the list is damaged or does not describe exactly ``size`` offsets. Their number
    is checked before they are computed, because a damaged file may describe billions.
    """
    if not isinstance(pairs, list):
        return None
    offsets = [0]
    for pair in pairs:
        if not _is_size_and_stride(pair) or len(offsets) * pair[0] > size:
            return None
        offsets = [offset + step * pair[1] for step in range(pair[0]) for offset in offsets]
    return offsets if len(offsets) == size else None


def _is_size_and_stride(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        # The bound keeps offsets small, whatever a damaged file contains.
        and all(type(number) is int and 0 < number < 2**40 for number in pair)
    )


def _report_wrong_cells(
    code: str, column: str, actual: list[str], expected: list[str], sink: Sink
) -> None:
    """Report that cells of ``column`` differ from the expected cells, in one diagnostic.

    ``code`` is the code of the diagnostic, which points to the row of the first wrong rank.
    """
    if actual == expected:
        return
    wrong = [n for n, pair in enumerate(zip(actual, expected, strict=True)) if pair[0] != pair[1]]
    first = [f"rank {n} has {actual[n]!r:.40}, must be {expected[n]!r:.40}" for n in wrong[:SHOWN]]
    message = f"{len(wrong)} of {len(actual)} ranks have a wrong value in the column {column}"
    sink.report(code, Finding(message, "; ".join(first)), span=_rank_map_position(wrong[0] + 2))


def _report_difference(message: str, sink: Sink) -> None:
    sink.report("A06", message, span=Span(DOCUMENT, 1, 1))


def _rank_map_position(line: int) -> Span:
    return Span(TABLE, line, 1)


def read_outline(text: str) -> RankMap | None:
    """Return the rank map without coordinates, read only from the first row of each host.

    Return None if the text contains quotes or carriage returns, or if a row is too short. PARC does
    not write such tables, so the caller must then read and compare all cells.
    """
    lines = text.split("\n")
    # The first line is the header, and the text ends with a newline.
    world, names = len(lines) - 2, lines[0].split(",")
    if '"' in text or "\r" in text or tuple(names[: len(PLACE)]) != PLACE or world < 1:
        return None
    # Ranks per host: the rows up to the first one whose node rank is not 0.
    ranks = next((n for n in range(world) if lines[n + 1].split(",", 2)[1:2] != ["0"]), world)
    firsts = [line.split(",", len(PLACE)) for line in lines[1 : world + 1 : ranks or world]]
    if any(len(first) <= len(PLACE) for first in firsts):
        return None
    _, _, hosts, _, _, racks, domains, _ = map(list, zip(*firsts, strict=True))
    return RankMap(world, hosts, racks, domains, dict.fromkeys(names[len(PLACE) :]))


def matching_rank_map(
    text: str, rank_map: RankMap, derived: DerivedGroups, devices: Sequence[str] | None
) -> RankMap | None:
    """Return ``rank_map`` with coordinates; None if ``text`` is not exactly the expected table.

    Args:
        text: the text of ``rankmap.csv``.
        rank_map: rank map without coordinates, read from ``text``.
        derived: groups that determine the coordinates.
        devices: devices that a launch script makes visible, by local rank; None: 0, 1, 2, ...
    """
    ranks, world = rank_map.ranks_per_node, rank_map.world
    gpus = list(devices or map(str, range(ranks)))
    repeated = len(set(rank_map.hosts)) < len(rank_map.hosts) or len(set(gpus)) < len(gpus)
    if repeated or world % ranks or len(gpus) != ranks:
        return None
    if rank_map.columns.keys() != set(derived.columns):
        return None
    columns = {name: coordinates_in_groups(derived.families[name]) for name in rank_map.columns}
    if any(len(column) != world for column in columns.values()):
        return None
    largest = max(len(derived.families[name].members) for name in columns)
    digits = [str(place) for place in range(largest)]  # formats each number once, not per cell
    cells = (map(digits.__getitem__, column) for column in columns.values())
    rows = _expected_rows(rank_map, gpus, map(",".join, zip(*cells, strict=True)))
    matches = text == "\n".join((",".join((*PLACE, *columns)), *rows, ""))
    return replace(rank_map, columns=columns) if matches else None


def _expected_rows(rank_map: RankMap, gpus: list[str], places: Iterable[str]) -> list[str]:
    """Return the expected rows of ``rankmap.csv``.

    ``gpus`` contains the GPU of each local rank of a host. ``places`` contains the coordinates of
    each rank as comma-separated text.
    """
    ranks = repeat(len(gpus))
    hosts = (f",{node},{host}" for node, host in enumerate(rank_map.hosts))
    local = [f",{index},{gpu}," for index, gpu in enumerate(gpus)] * len(rank_map.hosts)
    racks = (
        f"{rack},{domain}," for rack, domain in zip(rank_map.racks, rank_map.domains, strict=True)
    )
    parts = zip(
        range(rank_map.world),
        chain.from_iterable(map(repeat, hosts, ranks)),
        local,
        chain.from_iterable(map(repeat, racks, ranks)),
        places,
        strict=True,
    )
    return [f"{rank}{host}{slot}{rack}{place}" for rank, host, slot, rack, place in parts]
