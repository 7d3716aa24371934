"""Host lists of a spec to names, each once; what is wrong with them, at its place."""

from __future__ import annotations

from collections.abc import Iterable

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.topology.hostlist import (
    MOST_HOSTS,
    HostlistError,
    TooManyHosts,
    expand,
    natural_key,
)

MOST_COMPARED = 2000
"""Names that a misspelt one is compared with."""
SHOWN = 3
"""Names that one message lists."""


def read_hosts(lists: str | tuple[str, ...], sink: Sink, at: str) -> list[tuple[str, list[str]]]:
    """(path, names) of every host list; one that cannot be read is reported and left out."""
    texts = (
        [(at, lists)]
        if isinstance(lists, str)
        else [(f"{at}[{index}]", text) for index, text in enumerate(lists)]
    )
    found = []
    for path, text in texts:
        try:
            found.append((path, expand(text)))
        except HostlistError as error:
            code = "H09" if isinstance(error, TooManyHosts) else "H01"
            finding = Finding(f"host list {text[:60]!r}: {error.message}", error.message)
            sink.report(code, finding, at=path, span=_inside(sink, path, text, error))
    return found


def _inside(sink: Sink, path: str, text: str, error: HostlistError) -> Span | None:
    """The culprit's own span, where the host list stands on one line as it is."""
    span = sink.positions.span_of(path) if sink.positions.is_written(path) else None
    lines = sink.positions.lines.get(span.file, ()) if span else ()
    if span is None or not 0 < span.line <= len(lines):
        return None
    start = lines[span.line - 1].find(text, span.column - 1) if text else -1
    if start < 0:
        return None
    return Span(span.file, span.line, start + error.column, error.length)


def unique_hosts(
    lists: Iterable[tuple[str, list[str]]], where: dict[str, str], sink: Sink
) -> list[str]:
    """Names that are new, in order, which ``where`` learns; H02 for the others of a list."""
    fresh: list[str] = []
    for path, names in lists:
        twice = []
        for name in names:
            if name in where:
                twice.append(name)
            else:
                where[name] = path
                fresh.append(name)
        if twice:
            _report_twice(twice, where, sink, path)
    return fresh


def _report_twice(twice: list[str], where: dict[str, str], sink: Sink, at: str) -> None:
    places = dict.fromkeys(where[name] for name in twice)
    causes = tuple(Cause(path, "first here") for path in list(places)[:SHOWN] if path != at)
    finding = Finding(
        message=f"{some_hosts(twice)} {are(twice)} listed twice",
        label="again here" if causes else "twice in this list",
        causes=causes,
    )
    sink.report("H02", finding, at=at)


def near_hosts(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of ``known``: the same but for zero padding, else the most alike."""
    from difflib import get_close_matches

    names = list(known)
    parts = natural_key(name)[0]
    padded = [other for other in names if natural_key(other)[0] == parts]
    alike = [other for other in names if abs(len(other) - len(name)) <= 1][:MOST_COMPARED]
    return padded[:1] or get_close_matches(name, alike, n=3, cutoff=0.7)


def report_too_many(hosts: int, sink: Sink, at: str) -> None:
    """H09: more hosts than are laid out."""
    finding = Finding(f"{hosts} hosts", f"{hosts} > {MOST_HOSTS}")
    sink.report("H09", finding, at=at)


def some_hosts(names: list[str]) -> str:
    """``n1, n2, n3 and 5 more``."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def are(names: list[str]) -> str:
    """The verb for so many names."""
    return "is" if len(names) == 1 else "are"
