"""A diff as titled tables, which the text and the Markdown form print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parc.compiler.report.diff.changes import Change
from parc.compiler.report.diff.diff import Diff
from parc.compiler.report.diff.groups import AxisChange
from parc.compiler.report.diff.ranks import Moves
from parc.compiler.report.formatting import gib, number_range, percent, quantity, seconds

MAX_RANGES = 12
"""Runs of moved ranks that are listed."""
MAX_HOSTS = 8
MAX_CELL = 60
TOO_SMALL = ("+0.0 %", "-0.0 %")
"""Changes too small to print; JSON has them."""
SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True, slots=True)
class Section:
    """One table and the lines under it."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def sections(found: Diff) -> tuple[Section, ...]:
    """The sections that have something to say, the most important first."""
    costs = (*found.time, *found.rates)
    candidates = (
        _change_section("spec", found.inputs),
        _change_section("layout", found.layout),
        _rank_section(found.moves),
        _group_section(found.groups),
        _change_section("memory of the fullest stage", found.memory),
        _change_section("step (estimated)", costs),
        _flag_section(_argument_title(found), found.arguments),
        _flag_section("environment", found.environment),
        _flag_section("Slurm directives", found.directives),
        _checkpoint_section(found),
    )
    return tuple(section for section in candidates if section.rows or section.notes)


def headline(found: Diff) -> str:
    """The change in one line: ranks moved, groups that now cross racks, memory and step time."""
    if not found.has_changes:
        return "no change"
    moves = found.moves
    parts = []
    if moves is not None:
        parts.append(f"{moves.moved:,} of {min(moves.old_world, moves.new_world):,} ranks move")
        crossing = sum(axis.now_crossing_racks for axis in found.groups)
        parts.append(f"{crossing:,} groups newly cross a rack")
    for name, rows in (("total_bytes", found.memory), ("total_seconds", found.time)):
        parts += [
            f"{'peak memory' if name == 'total_bytes' else 'step time'} {_delta(row)}"
            for row in rows
            if row.name == name
        ]
    if found.checkpoint is not None:
        parts.append(f"checkpoint {found.checkpoint.verdict}")
    return ", ".join(parts)


def _argument_title(found: Diff) -> str:
    return "vLLM arguments" if found.checkpoint is None else "Megatron arguments"


def _change_section(title: str, rows: tuple[Change, ...]) -> Section:
    shown = tuple(
        (_name(row), _value(row, row.old), _value(row, row.new), _delta(row))
        for row in rows
        if _delta(row) not in TOO_SMALL
    )
    return Section(title, ("", "old", "new", "change"), shown)


def _name(change: Change) -> str:
    return change.name.removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")


def _value(change: Change, value: Any) -> str:
    """A value with the unit that the name of the field says."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _clip(value if isinstance(value, str) else str(value))
    if change.name.endswith("_bytes"):
        return gib(value)
    if change.name.endswith("_seconds"):
        return seconds(value)
    if change.name == "mfu":
        return percent(value)
    return quantity(value) if change.name == "tokens_per_second" else f"{value:,}"


def _delta(change: Change) -> str:
    """``+12.3 %`` where both are measures of the same thing."""
    old, new = change.old, change.new
    measured = change.name.endswith(("_bytes", "_seconds", "_per_second")) or change.name == "mfu"
    if not measured or not isinstance(old, int | float) or not isinstance(new, int | float):
        return ""
    if not old:
        return "new"
    return f"{(new - old) / old * 100:+.1f} %"


def _clip(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 3]}..."


def _flag_section(title: str, rows: tuple[Change, ...]) -> Section:
    shown = tuple(
        (SIGNS[row.kind], row.name, _clip(row.old or ""), _clip(row.new or "")) for row in rows
    )
    return Section(title, ("", "name", "old", "new"), shown)


def _rank_section(moves: Moves | None) -> Section:
    if moves is None:
        return Section("ranks", notes=("a side has no rankmap.csv: emit rankmap to compare ranks",))
    if not moves.has_changes:
        return Section("ranks")
    rows = tuple(
        (number_range(run.first_rank, run.last_rank), _clip(run.old), _clip(run.new))
        for run in moves.runs[:MAX_RANGES]
    )
    title = "ranks that move" if rows else "ranks"
    return Section(title, ("ranks", "from", "to"), rows, tuple(_move_notes(moves)))


def _move_notes(moves: Moves) -> Iterator[str]:
    common = min(moves.old_world, moves.new_world)
    if len(moves.runs) > MAX_RANGES:
        yield f"and {len(moves.runs) - MAX_RANGES:,} more runs"
    yield f"{moves.moved:,} of {common:,} ranks move to another GPU"
    if moves.recast:
        yield f"{moves.recast:,} of {common:,} ranks have other mesh coordinates"
    if moves.old_world != moves.new_world:
        yield f"ranks: {moves.old_world:,} -> {moves.new_world:,}"
    for verb, hosts in (("leave", moves.left), ("join", moves.joined)):
        if hosts:
            more = f" and {len(hosts) - MAX_HOSTS:,} more" if len(hosts) > MAX_HOSTS else ""
            yield f"hosts that {verb}: {', '.join(hosts[:MAX_HOSTS])}{more}"
    for old, new in moves.renamed_racks:
        yield f"rack {old} is now called {new}; its hosts are the same"
    for host, old, new in moves.moved_hosts[:MAX_HOSTS]:
        yield f"host {host} goes from rack {old} to rack {new}"
    if len(moves.moved_hosts) > MAX_HOSTS:
        yield f"and {len(moves.moved_hosts) - MAX_HOSTS:,} more hosts change racks"


def _group_section(axes: tuple[AxisChange, ...]) -> Section:
    rows = tuple(
        (
            axis.axis,
            _old_to_new(
                f"{axis.old_groups:,} x {axis.old_size}", f"{axis.new_groups:,} x {axis.new_size}"
            ),
            f"{axis.same_members:,}",
            _old_to_new(f"{axis.old_crossing_domains:,}", f"{axis.new_crossing_domains:,}"),
            _old_to_new(f"{axis.old_crossing_racks:,}", f"{axis.new_crossing_racks:,}"),
            f"{axis.now_crossing_racks:,}",
        )
        for axis in axes
    )
    head = ("axis", "groups", "same ranks", "cross NVLink domains", "cross racks", "newly")
    notes = tuple(
        f"{axis.axis} group now crosses racks: {example}"
        for axis in axes
        for example in axis.examples
    )
    return Section("groups that change", head, rows, notes)


def _old_to_new(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"


def _checkpoint_section(found: Diff) -> Section:
    if not found.has_changes or found.checkpoint is None:
        return Section("checkpoint")
    notes = (f"a checkpoint of {found.old}: {found.checkpoint.verdict}", *found.checkpoint.reasons)
    return Section("checkpoint", notes=notes)
