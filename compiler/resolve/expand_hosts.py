"""Expand the host lists of a spec into unique names; problems are reported at their position."""

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
"""Limit of names that a misspelled name is compared with: matching is slow."""
SHOWN = 3
"""Names that a message lists before ``and N more``."""


def read_hosts(lists: str | tuple[str, ...], sink: Sink, at: str) -> list[tuple[str, list[str]]]:
    """Return (path, names) per host list; an invalid list is reported and left out."""
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
    """Return the span of the invalid part; None unless one line contains the host list as is."""
    span = sink.positions.span_of(path) if sink.positions.is_written(path) else None
    lines = sink.positions.lines.get(span.file, ()) if span else ()
    if span is None or not 0 < span.line <= len(lines):
        return None
    start = lines[span.line - 1].find(text, span.column - 1) if text else -1
    if start < 0:
        return None
    return Span(span.file, span.line, start + error.column, error.length)


def unique_hosts(
    lists: Iterable[tuple[str, list[str]]], paths: dict[str, str], sink: Sink
) -> list[str]:
    """Return the names that are not in ``paths`` yet, in order, and add them; H02 for repeats.

    ``paths``: host name -> spec path that lists it first.
    """
    fresh: list[str] = []
    for path, names in lists:
        repeated = []
        for name in names:
            if name in paths:
                repeated.append(name)
            else:
                paths[name] = path
                fresh.append(name)
        if repeated:
            _report_repeated(repeated, paths, sink, path)
    return fresh


def _report_repeated(repeated: list[str], paths: dict[str, str], sink: Sink, at: str) -> None:
    places = dict.fromkeys(paths[name] for name in repeated)
    causes = tuple(Cause(path, "listed first here") for path in list(places)[:SHOWN] if path != at)
    finding = Finding(
        message=f"{some_hosts(repeated)} {are(repeated)} listed twice",
        label="listed again here" if causes else "twice in this list",
        causes=causes,
    )
    sink.report("H02", finding, at=at)


def near_hosts(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three similar names: one that differs only in zero padding, else the nearest."""
    from difflib import get_close_matches

    names = list(known)
    parts = natural_key(name)[0]
    padded = [other for other in names if natural_key(other)[0] == parts]
    alike = [other for other in names if abs(len(other) - len(name)) <= 1][:MOST_COMPARED]
    return padded[:1] or get_close_matches(name, alike, n=3, cutoff=0.7)


def report_too_many(hosts: int, sink: Sink, at: str) -> None:
    """Report H09: more hosts than PARC supports."""
    finding = Finding(f"{hosts} hosts", f"{hosts} > {MOST_HOSTS}")
    sink.report("H09", finding, at=at)


def some_hosts(names: list[str]) -> str:
    """Return the names as text, for example ``n1, n2, n3 and 5 more``."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def are(names: list[str]) -> str:
    """Return ``is`` for one name, else ``are``."""
    return "is" if len(names) == 1 else "are"
