"""Render diagnostics as text: message, position, source lines with the formula, help and fix.

::

    error[PARC-D01]: 64 attention heads cannot be split over tp=6
      --> spec.yaml:12:7            layout.tp
       |
     4 |   heads: 64
       |          -- heads come from here
    12 |   tp: 6
       |       ^ 64 % 6 = 4, must be 0           (megatron)
       = help: valid tp within one NVLink domain of 8: 1, 2, 4, 8
       = fix:  layout.tp: 8   (keeps 48 GPUs: pp 2, dp 3)
       = more: parc explain PARC-D01

Markers are aligned by terminal columns, not characters: a tab or a wide character fills several
columns, and a combining character none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from parc.compiler.diagnostics.sink import SEVERITY_ORDER, Sink
from parc.compiler.diagnostics.wording import format_count
from parc.compiler.ir.finding import Cause, Diagnostic, Severity, Span, SpecPositions

TAB = "    "
ZERO_WIDTH_JOINERS = "\u200c\u200d"
"""Invisible characters of width 0 that join letters and emoji in ordinary text. They are not
escaped."""
MAX_COLUMNS = 120
"""Maximum number of columns of a source line; a longer line is cut around the marked part."""
MAX_CHARACTERS = 1000
"""Maximum number of characters that are measured in each part of a source line: before, inside and
after the marked part."""
MAX_WORD = 60
"""Maximum number of characters of a marked word. The limit applies to files from which only marked
words may be printed."""
LEADING_COLUMNS = 30
"""Number of columns to keep before the marked part if a line is cut."""


def make_printable(text: str) -> str:
    """Return ``text`` with line breaks and terminal control characters replaced by escapes."""
    return "".join(_escape_character(character) for character in text)


def display_width(text: str) -> int:
    """Return the number of terminal columns that a printable text fills."""
    return sum(_column_count(character) for character in text)


def cut_excerpt(line: str, column: int, length: int) -> tuple[str, int, int]:
    """Return the part of a source line to print, and the position of the marker below it.

    Args:
        line: source line.
        column: first marked character, counted from 1.
        length: number of marked characters.

    Returns:
        (text, offset of the marker, length of the marker). Offset and length are in terminal
        columns; the offset of the first column is 0.
    """
    start = min(max(column - 1, 0), len(line))
    # Only the part around the mark is escaped and measured: a spec with a thousand mistakes on a
    # line of a megabyte would take minutes otherwise.
    first, end = max(0, start - MAX_CHARACTERS), start + min(length, MAX_CHARACTERS)
    before = make_printable(line[first:start])
    marked = make_printable(line[start:end])
    after = make_printable(line[end : end + MAX_CHARACTERS])
    offset, marker_length = display_width(before), max(1, display_width(marked))
    if offset + marker_length + display_width(after) <= MAX_COLUMNS:
        return before + marked + after, offset, marker_length
    # The dots of "..." take three columns at either end.
    if offset > LEADING_COLUMNS:
        before = "..." + before[-(LEADING_COLUMNS - 3) :]
        offset = display_width(before)
    text = before + marked + after
    if display_width(text) <= MAX_COLUMNS and end + MAX_CHARACTERS >= len(line):
        # Without its beginning, the line fits.
        return text, offset, marker_length
    text = _cut_to_columns(text, MAX_COLUMNS - 3) + "..."
    return text, offset, min(marker_length, max(1, MAX_COLUMNS - 3 - offset))


def cut_word(line: str, column: int, length: int) -> tuple[str, int, int]:
    """Return the marked word of a source line, and the position of the marker below it.

    All other text of the line is replaced by dots. If only one character is marked, the mark is a
    position and not a word, so no text is shown. The arguments and the result are those of
    ``cut_excerpt``.
    """
    start = max(column - 1, 0)
    found = line[start : start + min(length, MAX_WORD)].split(maxsplit=1) if length > 1 else []
    word = make_printable(found[0]) if found else ""
    if not word:
        return "...", 0, 1
    before = "... " if line[:start].strip() else ""
    after = " ..." if line[start + len(found[0]) :].strip() else ""
    return before + word + after, len(before), display_width(word)


def _cut_to_columns(text: str, columns: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _column_count(character)
        if used > columns:
            return text[:index]
    return text


def _escape_character(character: str) -> str:
    if character == "\t":
        return TAB
    category = unicodedata.category(character)
    # Cc contains escape sequences, Cf bidirectional overrides; Cs (lone surrogates) cannot be
    # encoded; Zl and Zp also end a line.
    if category not in ("Cc", "Cf", "Cs", "Zl", "Zp") or character in ZERO_WIDTH_JOINERS:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _column_count(character: str) -> int:
    # Terminals print East Asian wide (W) and full-width (F) characters over two columns.
    if unicodedata.combining(character) or character in ZERO_WIDTH_JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


MAX_LINE_GAP = 10
"""Maximum distance between two printed source lines without ``...`` between them."""
PATH_COLUMN = 26
"""Width of the column with the position, including two spaces; the spec path follows."""
TARGET_COLUMN = 33
"""Width of the column with the marker and its label; the names of frameworks follow."""
COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow", "advice": "cyan"}

Paint = Callable[[str, str], str]


class SourceMark(NamedTuple):
    """Marked part of a source line: ``sign`` is ``^`` for the problem and ``-`` for a cause."""

    span: Span
    text: str
    sign: str


def render(sinks: Sequence[Sink], color: bool) -> str:
    """Return the diagnostics of all ``sinks`` and a summary as text.

    The text is empty if there are no diagnostics.
    """
    texts = [render_text(sink.diagnostics, sink.positions, color=color) for sink in sinks]
    shown = [text for text in texts if text]
    found = [item for sink in sinks for item in sink.diagnostics]
    mistakes = sum(len(_group_by_fix(sink.diagnostics)) for sink in sinks)
    merged = f" from {format_count(mistakes, 'mistake')}" if mistakes < len(found) else ""
    return "\n".join([*shown, f"{summarize(found)}{merged}\n"]) if shown else ""


def render_text(
    diagnostics: Sequence[Diagnostic], positions: SpecPositions, *, color: bool = False
) -> str:
    """Return the text of the diagnostics of one spec, without a summary of their number.

    One mistake often violates several rules. Diagnostics with the same fix become one block: the
    first one in full, of the others only the message.
    """
    paint = _make_painter(color)
    blocks = []
    for first, *others in _group_by_fix(diagnostics):
        lines = list(_diagnostic_lines(first, positions, paint))
        indent = lines[-1].partition("=")[0]
        lines += [
            f"{indent}= also: {found.code}: {make_printable(found.finding.message)}"
            for found in others
        ]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _group_by_fix(diagnostics: Sequence[Diagnostic]) -> list[list[Diagnostic]]:
    """Return the diagnostics in groups with the same severity and the same fix."""
    groups: dict[object, list[Diagnostic]] = {}
    for index, found in enumerate(diagnostics):
        groups.setdefault((found.severity, found.finding.fix or index), []).append(found)
    return list(groups.values())


def summarize(diagnostics: Sequence[Diagnostic]) -> str:
    """Return the number of diagnostics by severity, such as ``2 errors, 1 warning``."""
    severities = [found.severity for found in diagnostics]
    return ", ".join(
        f"{severities.count(severity)} advice"
        if severity == "advice"  # has no plural
        else format_count(severities.count(severity), severity)
        for severity in SEVERITY_ORDER
        if severity in severities
    )


def _make_painter(color: bool) -> Paint:
    if not color:
        return lambda text, _: text
    from click import style

    return lambda text, name: style(text, fg=name, bold=True)


def _diagnostic_lines(
    diagnostic: Diagnostic, positions: SpecPositions, paint: Paint
) -> Iterator[str]:
    """Yield all lines to print for one diagnostic."""
    marks = _source_marks(diagnostic)
    here = [mark for mark in marks if diagnostic.span and mark.span.file == diagnostic.span.file]
    gutter = max((len(str(mark.span.line)) for mark in here), default=1)
    pad = " " * gutter
    name = paint(f"{diagnostic.severity}[{diagnostic.code}]", COLORS[diagnostic.severity])
    yield f"{name}: {make_printable(diagnostic.finding.message)}"
    yield f"{pad}--> {_format_location(diagnostic, positions)}"
    if here:
        yield f"{pad} |"
        yield from _source_lines(here, positions, gutter, diagnostic)
    for mark in marks:
        if mark not in here:
            yield f"{pad}::: {_format_span(mark.span)}"
            yield from _source_lines([mark], positions, gutter, diagnostic)
    yield from _note_lines(diagnostic, pad)


def _source_marks(diagnostic: Diagnostic) -> list[SourceMark]:
    """Return the marks of the problem and of its causes, in the order of the source text."""
    marks = [
        SourceMark(cause.span, cause.text, "-")
        for cause in diagnostic.finding.causes
        if cause.span is not None and cause.span != diagnostic.span
    ]
    if diagnostic.span is not None:
        marks.append(SourceMark(diagnostic.span, diagnostic.finding.label, "^"))
    return sorted(marks, key=lambda mark: mark.span)


def _format_location(diagnostic: Diagnostic, positions: SpecPositions) -> str:
    address = _format_span(diagnostic.span) if diagnostic.span else make_printable(positions.file)
    if not diagnostic.path:
        return address
    return f"{address:<{PATH_COLUMN - 2}}  {make_printable(diagnostic.path)}"


def _format_span(span: Span) -> str:
    return f"{make_printable(span.file)}:{span.line}:{span.column}"


def _source_lines(
    marks: list[SourceMark], positions: SpecPositions, gutter: int, diagnostic: Diagnostic
) -> Iterator[str]:
    """Yield the marked source lines, each followed by its markers.

    ``gutter`` is the width of the column with line numbers.
    """
    last, shown = 0, ""
    for mark in marks:
        lines = positions.lines.get(mark.span.file, ())
        if not 0 < mark.span.line <= len(lines):
            continue
        source = lines[mark.span.line - 1]
        word_only = mark.span.file in positions.word_only
        cut = cut_word if word_only else cut_excerpt
        text, offset, length = cut(source, mark.span.column, mark.span.length)
        if last and mark.span.line - last > MAX_LINE_GAP:
            yield "..."
        # A long line is cut differently around each of its marks.
        if word_only or mark.span.line != last or text != shown:
            yield f"{mark.span.line:>{gutter}} | {text}".rstrip()
        last, shown = mark.span.line, text
        label = f"{mark.sign * length} {make_printable(mark.text)}".rstrip()
        if mark.sign == "^" and diagnostic.finding.targets:
            label = f"{label:<{TARGET_COLUMN}} ({', '.join(diagnostic.finding.targets)})"
        yield f"{' ' * gutter} | {' ' * offset}{label}"


def _note_of_cause(cause: Cause) -> str:
    """Return the text of a cause, with its spec path unless the text names the field itself."""
    name = cause.path.rpartition(".")[2].removeprefix("the ").partition(" (")[0]
    is_named = name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", cause.text)
    return cause.text if is_named else f"{cause.path}: {cause.text}"


def _note_lines(diagnostic: Diagnostic, pad: str) -> Iterator[str]:
    """Yield the lines below the source: causes without a position, help, fix, ``parc explain``."""
    finding = diagnostic.finding
    if diagnostic.span is None and finding.label:
        yield f"{pad} = note: {make_printable(finding.label)}"
    for cause in finding.causes:
        if cause.span is None and not cause.is_pointer:
            yield f"{pad} = note: {make_printable(_note_of_cause(cause))}"
    if finding.help:
        yield f"{pad} = help: {make_printable(finding.help)}"
    if finding.fix:
        yield f"{pad} = fix:  {make_printable(finding.fix)}"
    yield f"{pad} = more: parc explain {diagnostic.code}"
