"""Compare the rank map of a serving job with the ranks and groups of its engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from parc.backends.verifier import DerivedRank, EngineVerifier
from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.read_emitted import DOCUMENT, TABLE
from parc.compiler.verify.verify_ranks import SHOWN, Table, span_offsets


def verify_engine_ranks(
    derived: Mapping[tuple[int, int], DerivedRank], table: Table, engine: EngineVerifier, sink: Sink
) -> None:
    """Report ranks whose GPU (A05) or coordinates (A01) differ between rank map and engine.

    Args:
        derived: (node rank, GPU) -> rank that the launch file of the engine starts there.
        table: columns of ``rankmap.csv``.
        engine: verifier of the engine.
        sink: receives one finding per code.
    """
    # Ranks that remain here after the loop are started by the engine but have no row.
    unmatched = dict(derived)
    wrong: dict[str, list[str]] = {"A05": [], "A01": []}
    for line, (node, device) in enumerate(zip(table["node_rank"], table["gpu"], strict=True)):
        found = unmatched.pop((_parse_number(node), _parse_number(device)), None)
        if found is None or str(found.rank) != table["rank"][line]:
            runs = "no rank" if found is None else f"rank {found.rank}"
            text = f"node rank {node}, GPU {device} runs {runs}, not rank {table['rank'][line]}"
            wrong["A05"].append(text)
        elif tuple(table[axis][line] for axis in engine.axes) != _as_texts(found.coordinates):
            place = dict(zip(engine.axes, found.coordinates, strict=True))
            wrong["A01"].append(f"rank {found.rank} has the coordinates {place}")
    if unmatched:
        wrong["A05"].append(f"{len(unmatched)} ranks of {engine.file} are not in {TABLE}")
    for code, texts in wrong.items():
        if texts:
            message = f"{len(texts)} ranks of {TABLE} differ from those that {engine.file} starts"
            finding = Finding(message, "; ".join(texts[:SHOWN]))
            sink.report(code, finding, span=Span(TABLE, 2, 1))


def verify_serving_document(
    tree: dict[str, Any], table: Table, engine: EngineVerifier, sink: Sink
) -> None:
    """Report each part of rankmap.json that contradicts rankmap.csv or the engine's file (A06)."""
    columns = [name for name in table if name in (*engine.axes, *engine.shared_axes)]
    for column in columns:
        values = tree["ranks"].get(column)
        if not isinstance(values, list) or [str(value) for value in values] != table[column]:
            _report_difference(f"ranks.{column} differs from the column {column} of {TABLE}", sink)
    for column in columns:
        # A group along an ordinary axis has equal coordinates along all other axes.
        others = tuple(axis for axis in engine.axes if axis != column)
        expected = _groups_with_equal_coordinates(table, engine.shared_axes.get(column, others))
        if _listed_groups(tree["groups"].get(column), expected) != expected:
            first = ", ".join(map(str, min(expected)[:SHOWN]))
            text = f"groups.{column} is not the set of groups that {engine.builder} builds"
            _report_difference(f"{text} (first group: {first} ...)", sink)
    for column in engine.shared_axes:
        if column in table:
            _verify_shared_axis(column, table, engine, sink)


def _verify_shared_axis(column: str, table: Table, engine: EngineVerifier, sink: Sink) -> None:
    """Report ranks whose coordinate in ``column`` is not their index in their group (A01).

    ``column`` is a shared axis, such as ep: its groups extend over several other axes of the
    engine.
    """
    wrong = [
        f"rank {rank} must be {place}"
        for group in _groups_with_equal_coordinates(table, engine.shared_axes[column])
        for place, rank in enumerate(group)
        if table[column][rank] != str(place)
    ]
    if wrong:
        message = f"{len(wrong)} ranks have a wrong coordinate in the column {column}"
        finding = Finding(message, "; ".join(wrong[:SHOWN]))
        sink.report("A01", finding, span=Span(TABLE, 2, 1))


def _groups_with_equal_coordinates(table: Table, shared: Iterable[str]) -> set[tuple[int, ...]]:
    """Return the groups of ranks whose coordinates are equal along all axes in ``shared``."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, key in enumerate(zip(*(table[axis] for axis in shared), strict=True)):
        groups.setdefault(key, []).append(rank)
    return {tuple(group) for group in groups.values()}


def _listed_groups(entry: Any, expected: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Return the groups that an entry of rankmap.json describes; an empty set if it is damaged."""
    if not isinstance(entry, dict):
        return set()
    members = span_offsets(entry.get("within"), len(min(expected)))
    bases = span_offsets(entry.get("across"), len(expected))
    return {tuple(base + member for member in members or ()) for base in bases or ()}


def _as_texts(coordinates: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(map(str, coordinates))


def _parse_number(text: str) -> int:
    """Return the number in a cell; -1 if the cell is not a number or has nine digits or more."""
    # The length is checked first, because int() raises ValueError for more than 4,300 digits.
    return int(text) if text.isdecimal() and len(text) < 9 else -1


def _report_difference(message: str, sink: Sink) -> None:
    sink.report("A06", message, span=Span(DOCUMENT, 1, 1))
