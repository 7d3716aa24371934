"""The text form: a message, where it is, the source lines with the formula, what to do.

::

    error[PARC-D01]: 64 attention heads cannot be split over tp=6
      --> spec.yaml:12:7            layout.tp
       |
     4 |   heads: 64
       |          -- heads come from here
    12 |   tp: 6
       |       ^ 64 % 6 = 4, must be 0           (megatron)
       = help: legal tp within one NVLink domain of 8: 1, 2, 4, 8
       = fix:  layout.tp: 8   (keeps 48 GPUs: pp 2, dp 3)
       = more: parc explain PARC-D01
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from parc.compiler.diagnostics.render.columns import excerpt, printable
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Diagnostic, Severity
from parc.compiler.ir.positions import Positions, Span

DISTANT = 10
"""Lines between two shown ones from which ``...`` stands for what is left out."""
PATH_COLUMN = 26
TARGET_COLUMN = 33
COLORS: dict[Severity, str] = {"error": "red", "warning": "yellow", "advice": "cyan"}

Paint = Callable[[str, str], str]


class Mark(NamedTuple):
    """One underlined span."""

    span: Span
    text: str
    sign: str


def render(sinks: Sequence[Sink], color: bool) -> str:
    """Every diagnostic, an empty line between two, and the summary; empty if there is none."""
    texts = [render_text(sink.diagnostics, sink.positions, color=color) for sink in sinks]
    shown = [text for text in texts if text]
    found = [item for sink in sinks for item in sink.diagnostics]
    return "\n".join([*shown, summary(found) + "\n"]) if shown else ""


def render_text(
    diagnostics: Sequence[Diagnostic], positions: Positions, *, color: bool = False
) -> str:
    """The diagnostics of one spec, without a summary."""
    paint = _painter(color)
    blocks = ["\n".join(_block(found, positions, paint)) + "\n" for found in diagnostics]
    return "\n".join(blocks)


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """``2 errors, 1 warning``."""
    severities = [found.severity for found in diagnostics]
    return ", ".join(
        _counted(severities.count(severity), noun)
        for severity, noun in (("error", "error"), ("warning", "warning"), ("advice", "hint"))
        if severity in severities
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _painter(color: bool) -> Paint:
    if not color:
        return lambda text, _: text
    from click import style

    return lambda text, name: style(text, fg=name, bold=True)


def _block(found: Diagnostic, positions: Positions, paint: Paint) -> Iterator[str]:
    """The lines of one diagnostic."""
    marks = _marks(found)
    here = [mark for mark in marks if found.span and mark.span.file == found.span.file]
    gutter = max((len(str(mark.span.line)) for mark in here), default=1)
    pad = " " * gutter
    name = paint(f"{found.severity}[{found.code}]", COLORS[found.severity])
    yield f"{name}: {printable(found.finding.message)}"
    yield f"{pad}--> {_where(found, positions)}"
    if here:
        yield f"{pad} |"
        yield from _listing(here, positions, gutter, found)
    for mark in marks:
        if mark not in here:
            yield f"{pad}::: {_address(mark.span)}"
            yield from _listing([mark], positions, gutter, found)
    yield from _notes(found, pad)


def _marks(found: Diagnostic) -> list[Mark]:
    """The primary span and those of the causes."""
    marks = [
        Mark(cause.span, cause.text, "-")
        for cause in found.finding.causes
        if cause.span is not None and cause.span != found.span
    ]
    if found.span is not None:
        marks.append(Mark(found.span, found.finding.label, "^"))
    return sorted(marks, key=lambda mark: mark.span)


def _where(found: Diagnostic, positions: Positions) -> str:
    address = _address(found.span) if found.span else printable(positions.file)
    if not found.path:
        return address
    return f"{address:<{PATH_COLUMN - 2}}  {printable(found.path)}"


def _address(span: Span) -> str:
    return f"{printable(span.file)}:{span.line}:{span.column}"


def _listing(
    marks: list[Mark], positions: Positions, gutter: int, found: Diagnostic
) -> Iterator[str]:
    """Source lines, each followed by its markers."""
    last = 0
    for mark in marks:
        lines = positions.lines.get(mark.span.file, ())
        if not 0 < mark.span.line <= len(lines):
            continue
        source = lines[mark.span.line - 1]
        text, offset, run = excerpt(source, mark.span.column, mark.span.length)
        if last and mark.span.line - last > DISTANT:
            yield "..."
        if mark.span.line != last:
            yield f"{mark.span.line:>{gutter}} | {text}".rstrip()
        last = mark.span.line
        label = f"{mark.sign * run} {printable(mark.text)}".rstrip()
        if mark.sign == "^" and found.finding.targets:
            label = f"{label:<{TARGET_COLUMN}} ({', '.join(found.finding.targets)})"
        yield f"{' ' * gutter} | {' ' * offset}{label}"


def _notes(found: Diagnostic, pad: str) -> Iterator[str]:
    """Causes that stand nowhere in the spec, help, fix, more."""
    finding = found.finding
    if found.span is None and finding.label:
        yield f"{pad} = note: {printable(finding.label)}"
    for cause in finding.causes:
        if cause.span is None:
            yield f"{pad} = note: {printable(cause.path)}: {printable(cause.text)}"
    if finding.help:
        yield f"{pad} = help: {printable(finding.help)}"
    if finding.fix:
        yield f"{pad} = fix:  {printable(finding.fix)}"
    yield f"{pad} = more: parc explain {found.code}"
