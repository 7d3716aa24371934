"""Text of ``rankmap.csv``, the rank map with one row per rank."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from parc.compiler.ir import AnyPlan, Placement

PLACE = ("rank", "node_rank", "host", "local_rank", "gpu", "rack", "nvlink_domain")
"""Columns before those of the mesh coordinates, whose names depend on the framework."""
_QUOTED = re.compile(r'[",\r\n]')


def rankmap_csv(plan: AnyPlan) -> str:
    """Return the text of ``rankmap.csv``.

    The column ``gpu`` is the device index that the local rank uses.
    """
    header = ",".join((*PLACE, *plan.placement.rank_map_columns))
    return "\n".join((header, *_rank_rows(plan.placement), ""))


def _rank_rows(placement: Placement) -> list[str]:
    """Return the CSV rows, one per rank.

    A cluster may have 131,072 ranks. To save time, each cell (of a host, a local rank or a
    coordinate) is formatted only once, and a row only joins such cells.
    """
    hosts, each = placement.hosts, placement.ranks_per_node
    names, racks, domains = (
        _quote_cells(cells)
        for cells in zip(*((h.name, h.rack, h.nvlink_domain) for h in hosts), strict=True)
    )
    slots = [f"{local},{gpu}" for local, gpu in enumerate(placement.devices or range(each))]
    numbers = [str(number) for number in range(placement.dense.world)]
    columns = [
        list(map(numbers.__getitem__, column)) for column in placement.rank_map_columns.values()
    ]
    places = map(",".join, zip(*columns, strict=True))
    starts = (f"{node},{name}" for node, name in enumerate(names))
    ends = (f"{rack},{domain}" for rack, domain in zip(racks, domains, strict=True))
    return [
        f"{rank},{start},{slot},{end},{place}"
        for rank, start, slot, end, place in zip(
            numbers,
            _repeat_per_rank(starts, each),
            slots * len(hosts),
            _repeat_per_rank(ends, each),
            places,
            strict=True,
        )
    ]


def _repeat_per_rank(cells: Iterable[str], each: int) -> Iterator[str]:
    """Return the cell of each host ``each`` times, that is, once per rank on the host."""
    return chain.from_iterable(map(repeat, cells, repeat(each)))


def _quote_cells(texts: Sequence[str]) -> Sequence[str]:
    """Return the cells ``texts``, with CSV quotes around each cell that needs them."""
    # One search over all names is much faster than one per name, and names seldom need quotes.
    if _QUOTED.search("".join(texts)) is None:
        return texts
    return [_quote_cell(text) for text in texts]


def _quote_cell(text: str) -> str:
    """Return the cell ``text``, in CSV quotes if it contains a separator, quote or line break."""
    written = io.StringIO()
    # The second, empty cell stops the writer from quoting an empty text; its comma is removed
    # below.
    csv.writer(written, lineterminator="").writerow((text, ""))
    return written.getvalue()[:-1]
