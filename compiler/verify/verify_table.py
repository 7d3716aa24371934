"""Compare the whole text of ``rankmap.csv`` with the table that the derived groups imply.

Hosts are taken from the first row of each host; all other cells follow from the framework's
arithmetic. Comparing texts costs a tenth of parsing 131,072 rows. Only if the texts differ does
``verify_ranks`` compare cell by cell, to name the wrong ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat

from parc.backends.verifier import DerivedGroups
from parc.compiler.verify.read_emitted import PLACE, RankMap
from parc.compiler.verify.verify_ranks import coordinates


def outline(text: str) -> RankMap | None:
    """Return ranks, hosts and column names of a table, without reading all cells.

    None if the text is quoted, or the first row of a host is too short: no table that PARC writes
    is like that, so that the cells must be compared.
    """
    lines = text.split("\n")
    world, names = len(lines) - 2, lines[0].split(",")
    if '"' in text or "\r" in text or tuple(names[: len(PLACE)]) != PLACE or world < 1:
        return None
    ranks = next((n for n in range(world) if lines[n + 1].split(",", 2)[1:2] != ["0"]), world)
    firsts = [line.split(",", len(PLACE)) for line in lines[1 : world + 1 : ranks or world]]
    if any(len(first) <= len(PLACE) for first in firsts):
        return None
    _, _, hosts, _, _, racks, domains, _ = map(list, zip(*firsts, strict=True))
    return RankMap(world, hosts, racks, domains, dict.fromkeys(names[len(PLACE) :]))


def matching_rank_map(
    text: str, found: RankMap, derived: DerivedGroups, devices: Sequence[str] | None
) -> RankMap | None:
    """Return ``found`` with its coordinates if ``text`` is the expected table, else None.

    Args:
        text: the text of ``rankmap.csv``.
        found: the outline of ``text``.
        derived: groups that determine the coordinates.
        devices: devices that a launch script makes visible, by local rank; None: 0, 1, 2, ...
    """
    ranks, world = found.ranks_per_node, found.world
    gpus = list(devices or map(str, range(ranks)))
    repeated = len(set(found.hosts)) < len(found.hosts) or len(set(gpus)) < len(gpus)
    if repeated or world % ranks or len(gpus) != ranks:
        return None
    if found.columns.keys() != set(derived.columns):
        return None
    columns = {name: coordinates(derived.families[name]) for name in found.columns}
    if any(len(column) != world for column in columns.values()):
        return None
    largest = max(len(derived.families[name].members) for name in columns)
    digits = [str(place) for place in range(largest)]  # formats each number once, not per cell
    cells = (map(digits.__getitem__, column) for column in columns.values())
    rows = _rows(found, gpus, map(",".join, zip(*cells, strict=True)))
    matches = text == "\n".join((",".join((*PLACE, *columns)), *rows, ""))
    return replace(found, columns=columns) if matches else None


def _rows(found: RankMap, gpus: list[str], places: Iterable[str]) -> list[str]:
    """Return the expected rows; ``places`` are the coordinates of each rank as text."""
    ranks = repeat(len(gpus))
    hosts = (f",{node},{host}" for node, host in enumerate(found.hosts))
    local = [f",{index},{gpu}," for index, gpu in enumerate(gpus)] * len(found.hosts)
    racks = (f"{rack},{domain}," for rack, domain in zip(found.racks, found.domains, strict=True))
    parts = zip(
        range(found.world),
        chain.from_iterable(map(repeat, hosts, ranks)),
        local,
        chain.from_iterable(map(repeat, racks, ranks)),
        places,
        strict=True,
    )
    return [f"{rank}{host}{slot}{rack}{place}" for rank, host, slot, rack, place in parts]
