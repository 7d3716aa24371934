"""A diff as plain text for the terminal, or as Markdown for a pull request.

Both formats print the same sections, which are titled tables with notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir.frozen import frozen
from parc.compiler.report.diff.diff import Diff
from parc.compiler.report.diff.file_changes import FileChange
from parc.compiler.report.diff.plan_fields import FieldChange
from parc.compiler.report.diff.rank_changes import AxisGroupDiff, RankMoves
from parc.compiler.report.diff.value_text import clip_pair, value_pair
from parc.compiler.report.formatting import format_range, table

MAX_RANGES = 12
"""Largest number of ranges of moved ranks that are listed."""
MAX_HOSTS = 8
SUMMARIES = ("parc.lock", "plan.json")
"""Files that differ whenever anything does."""
MAX_EDITED = 8
"""Largest number of files whose lines are listed."""
TOO_SMALL = ("+0.0 %", "-0.0 %")
"""Relative changes that round to zero. Rows with such a change are shown only in JSON."""
SIGNS = {"added": "+", "removed": "-", "changed": "~"}
CHECKPOINTS = {
    "loads": "old checkpoints load",
    "weights only": "old checkpoints: weights load, optimizer state does not",
    "does not load": "old checkpoints do not load",
    "unknown": "it is unknown whether old checkpoints load",
}
"""Result of the checkpoint comparison -> text."""
LABELS = {
    "mfu": "MFU",
    "ttft_seconds": "TTFT",
    "tpot_seconds": "TPOT",
    "gpu_hours": "GPU-hours",
    "tokens_per_second": "tokens/s",
    "micro_batch": "micro-batch",
    "micro_batches": "micro-batches",
    "wall_seconds": "expected time",
}
"""Name of a field -> its label. Other labels are the words of the name without its unit."""
UNITS = ("_bytes", "_seconds", "_kwh")


@frozen
class DiffSection:
    """Titled table of a diff, with notes below the table."""

    title: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def diff_sections(diff: Diff) -> tuple[DiffSection, ...]:
    """Return the sections of the diff that have rows or notes, from inputs to checkpoint."""
    costs = (*diff.time, *diff.rates)
    serves = diff.checkpoint is None
    candidates = (
        _change_section("spec", diff.inputs, exact=True),
        _change_section("layout", diff.layout, exact=True),
        _rank_section(diff.moves),
        _group_section(diff.groups),
        _change_section("memory of the fullest stage", diff.memory),
        _estimate_section(diff, costs, "latency and load" if serves else "step time"),
        _change_section("run (estimated)", diff.run),
        setting_changes_section("launch arguments", diff.arguments),
        setting_changes_section("environment", diff.environment),
        setting_changes_section("Slurm directives", diff.directives),
        _checkpoint_section(diff),
        file_section(diff.files, diff.has_planned_changes),
    )
    return tuple(section for section in candidates if section.rows or section.notes)


def diff_headline(diff: Diff) -> str:
    """Return a one-line summary: moved ranks, groups, memory, step time and checkpoints."""
    if not diff.has_changes:
        return "no changes"
    if not diff.has_planned_changes:
        count = len(diff.files)
        return f"the same plan, but {format_count(count, 'file')} differ{'s' * (count == 1)}"
    # Plans of serving jobs have no peak memory, step time or checkpoint, so parts may be absent.
    moves = diff.moves
    parts = []
    if moves is not None:
        parts.append(_count_moved_ranks(moves))
        crossing = sum(axis.newly_crossing_racks for axis in diff.groups)
        parts.append(f"{format_count(crossing, 'group')} newly span racks")
    for name, rows in (("total_bytes", diff.memory), ("total_seconds", diff.time)):
        parts += [
            f"{'peak memory' if name == 'total_bytes' else 'step time'} {_relative_change(row)}"
            for row in rows
            if row.name == name
        ]
    if diff.checkpoint is not None:
        parts.append(CHECKPOINTS[diff.checkpoint.verdict])
    return ", ".join(parts)


def _change_section(title: str, rows: tuple[FieldChange, ...], exact: bool = False) -> DiffSection:
    """Return a section with one row per change.

    If ``exact`` is False, the values are estimates, and changes that round to zero are left out.
    """
    shown = tuple(
        (_field_label(row), *value_pair(row, exact), _relative_change(row))
        for row in rows
        if exact or _relative_change(row) not in TOO_SMALL
    )
    return DiffSection(title, ("", "old", "new", "change"), shown)


def _estimate_section(diff: Diff, rows: tuple[FieldChange, ...], title: str) -> DiffSection:
    """Return the section of the estimates, with notes on what they rest on."""
    section = _change_section(f"{title} (estimated)", rows)
    notes = tuple(
        f"The {side} estimate rests on: {text}."
        for side, text in zip(("old", "new"), diff.basis, strict=True)
        if text and section.rows
    )
    return replace(section, notes=notes)


def _field_label(change: FieldChange) -> str:
    """Return a spec path as it is, and the name of any other field as words."""
    if "." in change.name:
        return change.name
    unit = next((unit for unit in UNITS if change.name.endswith(unit)), "")
    return LABELS.get(change.name) or change.name.removesuffix(unit).replace("_", " ")


def _relative_change(change: FieldChange) -> str:
    """Return the relative change of a field as text, such as ``+12.3 %``.

    The text is empty if the field is not a quantity. The text is ``new`` if the old value is zero.
    """
    old, new = change.old, change.new
    units = ("_bytes", "_seconds", "_per_second", "_hours", "_kwh", "_share")
    measured = change.name.endswith(units) or change.name in ("mfu", "cost")
    if not measured or not isinstance(old, int | float) or not isinstance(new, int | float):
        return ""
    # A relative change from zero is undefined.
    if not old:
        return "new"
    return f"{(new - old) / old * 100:+.1f} %"


def setting_changes_section(title: str, rows: tuple[FieldChange, ...]) -> DiffSection:
    """Return a section with one row per added, removed or changed setting."""
    shown = tuple(
        (SIGNS[row.kind], row.name, *clip_pair(row.old or "", row.new or "")) for row in rows
    )
    return DiffSection(title, ("", "name", "old", "new"), shown)


def _rank_section(moves: RankMoves | None) -> DiffSection:
    if moves is None:
        return DiffSection(
            "ranks",
            notes=(
                "Ranks are not compared, because one side has no rankmap.csv. "
                "Add rankmap to emit in its spec.",
            ),
        )
    if not moves.has_changes:
        return DiffSection("ranks")
    rows = tuple(
        (format_range(run.first_rank, run.last_rank), *clip_pair(run.old, run.new))
        for run in moves.moved_ranges[:MAX_RANGES]
    )
    title = "moved ranks" if rows else "ranks"
    return DiffSection(title, ("ranks", "from", "to"), rows, tuple(_move_notes(moves)))


def _count_moved_ranks(moves: RankMoves) -> str:
    if not moves.moved:
        return "every rank keeps its GPU"
    return f"{moves.moved:,} of {min(moves.old_world, moves.new_world):,} ranks move to another GPU"


def _move_notes(moves: RankMoves) -> Iterator[str]:
    common = min(moves.old_world, moves.new_world)
    if len(moves.moved_ranges) > MAX_RANGES:
        yield f"and {len(moves.moved_ranges) - MAX_RANGES:,} more ranges"
    changed = (
        f"; {moves.changed_coordinates:,} of {common:,} change mesh coordinates"
        if moves.changed_coordinates
        else ""
    )
    yield f"{_count_moved_ranks(moves)}{changed}"
    if moves.old_world != moves.new_world:
        yield f"ranks: {moves.old_world:,} -> {moves.new_world:,}"
    for verb, hosts in (("removed", moves.removed_hosts), ("added", moves.added_hosts)):
        if hosts:
            more = f" and {len(hosts) - MAX_HOSTS:,} more" if len(hosts) > MAX_HOSTS else ""
            yield f"{verb} hosts: {', '.join(hosts[:MAX_HOSTS])}{more}"
    for old, new in moves.renamed_racks:
        yield f"rack {old} is renamed to {new}, with the same hosts"
    for host, old, new in moves.moved_hosts[:MAX_HOSTS]:
        yield f"host {host} moves from rack {old} to rack {new}"
    if len(moves.moved_hosts) > MAX_HOSTS:
        yield f"and {len(moves.moved_hosts) - MAX_HOSTS:,} more hosts change racks"


def _group_section(axes: tuple[AxisGroupDiff, ...]) -> DiffSection:
    rows = tuple(
        (
            axis.axis,
            _format_old_to_new(
                f"{axis.old_groups:,} x {axis.old_size}", f"{axis.new_groups:,} x {axis.new_size}"
            ),
            f"{axis.same_members:,}",
            _format_old_to_new(f"{axis.old_crossing_domains:,}", f"{axis.new_crossing_domains:,}"),
            _format_old_to_new(f"{axis.old_crossing_racks:,}", f"{axis.new_crossing_racks:,}"),
            f"{axis.newly_crossing_racks:,}",
        )
        for axis in axes
    )
    head = ("axis", "groups", "unchanged", "span NVLink domains", "span racks", "newly")
    notes = tuple(
        f"{axis.axis} group newly spans racks: {example}"
        for axis in axes
        for example in axis.examples
    )
    return DiffSection("changed groups", head, rows, notes)


def _format_old_to_new(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"


def _checkpoint_section(diff: Diff) -> DiffSection:
    if not diff.has_planned_changes or diff.checkpoint is None:
        return DiffSection("checkpoint")
    notes = (CHECKPOINTS[diff.checkpoint.verdict], *diff.checkpoint.reasons)
    return DiffSection("checkpoint", notes=notes)


def file_section(files: tuple[FileChange, ...], planned: bool) -> DiffSection:
    """Return the lines that differ in files edited by hand, and the names of the other files.

    ``planned`` is True if the plans differ; otherwise the lines of all files are listed.
    """
    listed = [one for one in files if one.edited or not planned]
    rows = tuple(
        (f"{one.path}:{line.line}", *clip_pair(line.old, line.new))
        for one in listed[:MAX_EDITED]
        for line in one.lines
    )
    notes = [
        f"{one.path}: {one.count - len(one.lines):,} more lines differ"
        for one in listed[:MAX_EDITED]
        if one.count > len(one.lines)
    ]
    for kind in ("added", "removed"):
        if paths := [one.path for one in files if one.kind == kind]:
            notes.append(f"{kind}: {', '.join(paths)}")
    if edited := [one.path for one in files if one.edited]:
        notes.append(f"edited after PARC wrote them: {', '.join(edited)}")
    hidden = (one for one in files if one not in listed[:MAX_EDITED] and one.kind == "changed")
    if others := [one.path for one in hidden if one.path not in SUMMARIES or not planned]:
        notes.append(f"files that differ: {', '.join(others)}")
    return DiffSection("files", ("file", "old", "new"), rows, tuple(notes))


def diff_text(diff: Diff) -> str:
    """Return the diff as plain text: the headline, then one table per section."""
    return render_plain_text((diff.old, diff.new), diff_headline(diff), diff_sections(diff))


def diff_markdown(diff: Diff) -> str:
    """Return the diff as Markdown: the headline, then one heading and table per section."""
    return render_markdown((diff.old, diff.new), diff_headline(diff), diff_sections(diff))


def render_plain_text(
    names: tuple[str, str], headline: str, sections: tuple[DiffSection, ...]
) -> str:
    """Return a diff as plain text. ``names`` are the names of the old and the new side."""
    parts = [f"{names[0]} -> {names[1]}: {headline}\n"]
    parts += [section_text(section) for section in sections]
    return "\n".join(parts)


def render_markdown(
    names: tuple[str, str], headline: str, sections: tuple[DiffSection, ...]
) -> str:
    """Return a diff as Markdown. ``names`` are the names of the old and the new side."""
    parts = [f"### parc diff: `{names[0]}` → `{names[1]}`\n", f"**{headline}**\n"]
    parts += [section_markdown(section) for section in sections]
    return "\n".join(parts)


def section_text(section: DiffSection) -> str:
    """Return a section as plain text: its title, then its table and notes, indented."""
    body = table(section.head, section.rows, left=len(section.head)) if section.rows else ""
    notes = "".join(f"{note}\n" for note in section.notes)
    indented = "".join(f"  {line}\n" for line in (body + notes).splitlines())
    return f"{section.title}\n{indented}"


def section_markdown(section: DiffSection) -> str:
    """Return a section as Markdown: a heading, a table and a list of notes."""
    return "\n".join(_markdown_lines(section)) + "\n"


def _markdown_lines(section: DiffSection) -> Iterator[str]:
    yield f"#### {section.title}\n"
    if section.rows:
        yield _markdown_row(section.head)
        yield _markdown_row(("---",) * len(section.head))
        yield from (_markdown_row(row) for row in section.rows)
        yield ""
    yield from (f"- {_escape_markdown(note)}" for note in section.notes)


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(_escape_markdown(cell) for cell in cells) + " |"


def _escape_markdown(text: str) -> str:
    """Return ``text`` with Markdown characters escaped.

    Host and rack names come from files, so they must not be able to add markup.
    """
    # The backslash comes first; otherwise it would escape the backslashes that are added.
    for sign in "\\|*<`[]":
        text = text.replace(sign, f"\\{sign}")
    return text
