"""Compare the whole of ``rankmap.csv`` with the table that the second route would write.

Hosts are those of their first rows, all else follows from the framework's own arithmetic. Equal
texts say that every cell is right, at a tenth of the price of taking 131,072 rows apart; where
they differ, ``verify_ranks`` goes cell by cell and says where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat

from parc.compiler.verify.derived_groups import RankMap, Told
from parc.compiler.verify.read_emitted import PLACE
from parc.compiler.verify.verify_ranks import coordinates


def outline(text: str) -> RankMap | None:
    """Ranks, hosts and columns of a table of plain rows, before its cells are looked at.

    None where the first row of a host is not what it must be: then no text agrees.
    """
    lines = text.split("\n")
    world, names = len(lines) - 2, lines[0].split(",")
    if '"' in text or "\r" in text or tuple(names[: len(PLACE)]) != PLACE or world < 1:
        return None
    each = next((n for n in range(world) if lines[n + 1].split(",", 2)[1:2] != ["0"]), world)
    firsts = [line.split(",", len(PLACE)) for line in lines[1 : world + 1 : each or world]]
    if any(len(first) <= len(PLACE) for first in firsts):
        return None
    _, _, hosts, _, _, racks, domains, _ = map(list, zip(*firsts, strict=True))
    return RankMap(world, hosts, racks, domains, dict.fromkeys(names[len(PLACE) :]))


def agreed(text: str, found: RankMap, told: Told, devices: Sequence[str] | None) -> RankMap | None:
    """``found`` with its coordinates, if ``text`` is what follows from its hosts and ``told``.

    ``devices`` is what a launch script makes visible, in the order of local ranks.
    """
    each, world = found.ranks_per_node, found.world
    gpus = list(devices or map(str, range(each)))
    twins = len(set(found.hosts)) < len(found.hosts) or len(set(gpus)) < len(gpus)
    if twins or world % each or len(gpus) != each or found.columns.keys() != set(told.columns):
        return None
    columns = {name: coordinates(told.families[name]) for name in found.columns}
    digits = [
        str(place) for place in range(max(len(told.families[name].members) for name in columns))
    ]
    if any(len(column) != world for column in columns.values()):
        return None
    cells = (map(digits.__getitem__, column) for column in columns.values())
    rows = _rows(found, gpus, map(",".join, zip(*cells, strict=True)))
    same = text == "\n".join((",".join((*PLACE, *columns)), *rows, ""))
    return replace(found, columns=columns) if same else None


def _rows(found: RankMap, gpus: list[str], places: Iterable[str]) -> list[str]:
    """Every row of the table; ``places`` are its coordinates."""
    each = repeat(len(gpus))
    hosts = (f",{node},{host}" for node, host in enumerate(found.hosts))
    local = [f",{index},{gpu}," for index, gpu in enumerate(gpus)] * len(found.hosts)
    racks = (f"{rack},{domain}," for rack, domain in zip(found.racks, found.domains, strict=True))
    parts = zip(
        range(found.world),
        chain.from_iterable(map(repeat, hosts, each)),
        local,
        chain.from_iterable(map(repeat, racks, each)),
        places,
        strict=True,
    )
    return [f"{rank}{host}{slot}{rack}{place}" for rank, host, slot, rack, place in parts]
