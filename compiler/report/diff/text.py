"""Output of a diff as plain text, or as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from parc.compiler.report.diff.diff import Diff
from parc.compiler.report.diff.sections import Section, headline, sections
from parc.compiler.report.formatting import table


def diff_text(found: Diff) -> str:
    """Return the headline and one table per section as plain text."""
    parts = [f"{found.old} -> {found.new}: {headline(found)}\n"]
    parts += [_plain(section) for section in sections(found)]
    return "\n".join(parts)


def diff_markdown(found: Diff) -> str:
    """Return the diff as Markdown: the headline, and one heading per section."""
    parts = [f"### parc diff: `{found.old}` → `{found.new}`\n", f"**{headline(found)}**\n"]
    parts += ["\n".join(_markdown(section)) + "\n" for section in sections(found)]
    return "\n".join(parts)


def _plain(section: Section) -> str:
    body = table(section.head, section.rows, left=len(section.head)) if section.rows else ""
    notes = "".join(f"{note}\n" for note in section.notes)
    indented = "".join(f"  {line}\n" for line in (body + notes).splitlines())
    return f"{section.title}\n{indented}"


def _markdown(section: Section) -> Iterator[str]:
    yield f"#### {section.title}\n"
    if section.rows:
        yield _row(section.head)
        yield _row(("---",) * len(section.head))
        yield from (_row(row) for row in section.rows)
        yield ""
    yield from (f"- {_escaped(note)}" for note in section.notes)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Escape characters of Markdown, because names come from files and must stay plain text."""
    for sign in "\\|*<`[]":
        text = text.replace(sign, f"\\{sign}")
    return text
