"""Compare ``rankmap.md`` with ``rankmap.json`` and ``plan.json``.

Reviewers read this page, so each of its numbers is derived again, without the code that renders it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from parc.backends.rankmap.verify_document import EXPERT_AXES
from parc.backends.rankmap.verify_page_tables import (
    RANK,
    ExpectedCell,
    PageFacts,
    byte_texts,
    duration_texts,
    engine_rows,
    exact_cell,
    group_rows,
    host_order_rows,
    plain_cell,
    rack_rows,
    rank_rows,
    serving_stage_rows,
    stage_rows,
)
from parc.compiler.diagnostics import Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.verify.read_emitted import DOCUMENT
from parc.compiler.verify.verify_settings import PLAN

PAGE = "rankmap.md"
SAMPLE = 16
"""Maximum number of ranks in the last table."""
GROUPS = "Process groups inside one host, NVLink domain or rack"
GROUP_COLUMNS = "group | groups x ranks | host | NVLink domain | rack | several racks | max racks"
TABLES = {
    "Stages": "stage | ranks | node ranks | hosts | layers",
    "Engines": "engine | ranks | node ranks | hosts | GPUs",
    "Stages, per rank": "stage | layers | weights GiB | KV cache GiB | blocks",
    "Racks": "rack | hosts | names | node ranks | stages",
    GROUPS: GROUP_COLUMNS,
    "Order of hosts": "order | busiest uplink per step | exposed per step | choice",
}
"""Title of a table -> its columns. The columns of the last table depend on the framework."""


@frozen
class PageLine:
    """Line of the page: the cells of a row, or one cell with a sentence."""

    cells: tuple[ExpectedCell, ...]
    table: str = ""
    """Title of the table; empty outside of tables."""
    columns: tuple[str, ...] = ()


def verify_page(text: str, facts: PageFacts, columns: Sequence[str], sink: Sink) -> None:
    """Report the first line of ``rankmap.md`` that differs from the plan (A06).

    Args:
        text: content of ``rankmap.md``.
        facts: content of the files that it is compared with.
        columns: columns of coordinates, in the order of ``rankmap.csv``.
        sink: receives at most one finding, because a missing row moves all later ones.
    """
    try:
        expected = list(_page_lines(facts, columns))
    except (TypeError, KeyError, AttributeError, ValueError, IndexError, ArithmeticError):
        message = f"{PAGE} cannot be compared: {DOCUMENT} or {PLAN} has a value of the wrong type"
        sink.report("A06", message, span=Span(PAGE, 1, 1))
        return
    numbered = enumerate(text.split("\n"), start=1)
    found = [(number, line.strip()) for number, line in numbered if line.strip()]
    last = found[-1][0] if found else 1
    for here, line in zip_longest(found, expected):
        number, content = here or (last, "")
        message = _describe_difference(content, line)
        if message:
            sink.report("A06", message, span=Span(PAGE, number, 1))
            return


def _describe_difference(found: str, expected: PageLine | None) -> str:
    """Return a sentence that states how the line ``found`` differs from the line ``expected``.

    The sentence is empty if the lines agree.
    """
    if expected is None:
        return f"{PAGE} has a line that the plan does not need: {found:.60}"
    is_row = found.startswith("|")
    cells = [one.strip() for one in found.removeprefix("|").removesuffix("|").split("|")]
    if is_row is not bool(expected.table) or not is_row:
        sentence = expected.cells[0]
        if not is_row and not expected.table and sentence.matches(found):
            return ""
        needed = " | ".join(cell.text for cell in expected.cells)
        has = f"has {found!r:.60}" if found else "ends"
        return f"{PAGE} {has}, the plan needs {needed!r:.80}"
    if len(cells) != len(expected.cells):
        has = f"has {len(cells)} cells, must have {len(expected.cells)}"
        return f"a row of the table {expected.table} {has}: {found:.60}"
    for column, cell, text in zip(expected.columns, expected.cells, cells, strict=True):
        if not cell.matches(text):
            place = f"in the column {column or 'without a name'} of the table {expected.table}"
            return f"{PAGE} has {text!r:.40} {place}, the plan needs {cell.text!r:.60}"
    return ""


def _page_lines(facts: PageFacts, columns: Sequence[str]) -> Iterator[PageLine]:
    plan, world = facts.plan, facts.tree["world"]
    problem = plan["problem"]
    yield _sentence_line(f"# Rank map of {plain_cell(problem['name'], 80)}")
    ranks = "rank" if world == 1 else "ranks"
    hosts = "host" if len(facts.hosts) == 1 else "hosts"
    counts = f"{world} {ranks} on {len(facts.hosts)} {hosts} ({facts.ranks_per_host} per host)"
    yield _sentence_line(f"{counts}, for {facts.tree['framework']} {facts.tree['version']}.")
    serving = "service" in problem
    yield from map(_sentence_line, _serving_head(facts) if serving else _training_head(facts))
    if serving:
        yield from _table_lines("Engines", engine_rows(facts))
        yield from _table_lines("Stages, per rank", serving_stage_rows(facts))
    else:
        yield from _table_lines("Stages", stage_rows(facts))
    yield from _table_lines("Racks", rack_rows(facts))
    yield from _table_lines(GROUPS, group_rows(facts))
    ranks = min(SAMPLE, world)
    if not serving:
        yield from _table_lines("Order of hosts", host_order_rows(facts))
        yield from _proof_lines(plan["placement"])
        ranks = min(ranks, 2 * facts.ranks_per_host)
    names = " | ".join((*RANK, *columns))
    yield from _table_lines("First ranks", rank_rows(facts, ranks, columns), names)


def _sentence_line(text: str, other: Iterable[str] = ()) -> PageLine:
    return PageLine((ExpectedCell(text, lambda found: found == text or found in other),))


def _table_lines(
    title: str, rows: Iterable[Sequence[ExpectedCell]], columns: str = ""
) -> Iterator[PageLine]:
    """Yield the lines that a table must have: the title, the heading and the rows."""
    names = tuple(name.strip() for name in (columns or TABLES[title]).split("|"))
    yield _sentence_line(f"## {title}")
    for row in (map(exact_cell, names), map(exact_cell, ["---"] * len(names)), *rows):
        yield PageLine(tuple(row), title, names)


def _training_head(facts: PageFacts) -> Iterator[str]:
    plan = facts.plan
    layout, meshes = plan["layout"], facts.tree["meshes"]
    names = {planned: name for name, planned in EXPERT_AXES.items()}
    expert = meshes.get("expert") or [
        {**axis, "axis": names.get(axis["axis"], axis["axis"])} for axis in meshes["dense"]
    ]
    dense = _format_sizes(layout, ("tp", "cp", "pp", "vpp", "dp"), "gtp")
    yield f"- dense: {dense}; rank = {_rank_formula(meshes['dense'])}"
    if plan["problem"]["model"]["experts"] is not None:
        sizes = _format_sizes(layout, ("etp", "ep", "pp", "edp"), "egtp")
        yield f"- experts: {sizes}; rank = {_rank_formula(expert)}"
    devices = plan["placement"].get("devices")
    index = f"`rank % {facts.ranks_per_host}`"
    gpu = f"item {index} of {', '.join(map(str, devices))}" if devices else index
    yield f"- order: {facts.tree['order']}; {_host_formula(facts)}, GPU = {gpu}"
    if plan["problem"]["cluster"]["named"]:
        yield f"- master: {plain_cell(facts.hosts[0], 80)}"
    else:
        yield _PLACEHOLDERS


_PLACEHOLDERS = (
    "- host names are placeholders: at launch, the job sorts its hosts by rack and fills this "
    "layout"
)


def _serving_head(facts: PageFacts) -> Iterator[str]:
    layout, problem = facts.plan["layout"], facts.plan["problem"]
    degrees = ("tp", "pcp", "pp", "dp", "ep", "dcp", "replicas")
    shown = [name for name in degrees if layout[name] > 1 or name in ("tp", "pp")]
    formula = _rank_formula(facts.tree["meshes"]["dense"], {"cp": "pcp"})
    yield f"- degrees: {_format_sizes(layout, shown)}; rank = {formula}"
    yield f"- {_host_formula(facts)}, GPU = `rank % {facts.ranks_per_host}`"
    if problem["model"]["experts"] is not None:
        yield (
            "- experts: all ranks of one stage of an engine form one `ep` group, ordered by dp "
            "first"
        )
    if not problem["cluster"]["named"]:
        yield _PLACEHOLDERS


def _host_formula(facts: PageFacts) -> str:
    return f"host = line `rank // {facts.ranks_per_host}` of the hostfile"


def _format_sizes(layout: Mapping[str, Any], names: Iterable[str], last: str = "") -> str:
    # A page lists how many ranks share weights only if there are several.
    more = [last] if layout.get(last, 1) > 1 else []
    return ", ".join(f"{name} {layout[name]}" for name in (*names, *more))


def _rank_formula(mesh: Sequence[Mapping[str, Any]], names: Mapping[str, str] | None = None) -> str:
    """Return the formula of the rank as text: a nested sum over the axes, the fastest first."""
    axes = [axis for axis in mesh if axis["size"] > 1] or [mesh[0]]
    text = ""
    for axis in reversed(axes):
        name = (names or {}).get(axis["axis"], axis["axis"])
        rest = f"({text})" if " + " in text else text
        text = f"{name} + {axis['size']} {rest}" if text else name
    return text


_COMPARISON = (
    "The table counts all bytes over the busiest uplink. The choice between equally fast orders "
    "ignores the bytes of",
    "pipelines, or of the parallelism that `layout.placement` names.",
)


def _proof_lines(placement: Mapping[str, Any]) -> Iterator[PageLine]:
    """Yield the lines below the table of host orders.

    They state how close the chosen order is to the best possible one.
    """
    default, proof = "Slurm's default is name order.", placement["proof"]
    for sentence in _COMPARISON:
        yield _sentence_line(sentence)
    if not placement["alternatives"]:
        yield _sentence_line(default)
        return
    # plan.json rounds the numbers from which the distance to the bound follows.
    chosen = f"{default} Chosen order: "
    proved = "optimal (proved)."
    quality = proved if proof["quality"] == "optimal" else "heuristic, or has a bound."
    yield PageLine(
        (
            ExpectedCell(
                chosen + quality,
                lambda found: (
                    found.startswith(chosen) and (found == chosen + proved) is (quality == proved)
                ),
            ),
        )
    )
    exposed, bound = (
        duration_texts(proof["exposed_seconds"]),
        duration_texts(proof["bound_seconds"]),
    )
    yield _sentence_line(
        f"- exposed on links between hosts: {exposed[0]} per step (lower bound {bound[0]})",
        [
            f"- exposed on links between hosts: {one} per step (lower bound {other})"
            for one in exposed
            for other in bound
        ],
    )
    traffic = [f"- busiest uplink: {one} per step" for one in byte_texts(proof["uplink_bytes"])]
    yield _sentence_line(traffic[0], traffic)
