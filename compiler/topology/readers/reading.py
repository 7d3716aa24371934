"""One file while it is read: positions, findings, and the hosts that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.topology.hostlist import (
    LONGEST_NAME,
    MOST_HOSTS,
    HostlistError,
    TooManyHosts,
    expand,
)
from parc.compiler.topology.readers.fragment import Fragment, Located

MOST_FINDINGS = 50
"""Findings of one file; a file of another kind would have one a line."""
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the text, without its end."""

    number: int
    text: str


class Reading:
    """Collects what a reader finds; ``fragment`` is the result, None after an error."""

    def __init__(self, text: str, file: str, sink: Sink) -> None:
        """``file`` is the name that positions show."""
        self.text, self.file, self.sink = text, file, sink
        self.sound = True
        self.notes: list[str] = []
        self.spec: dict[str, Any] = {}
        self.spans: dict[str, Span] = {}
        self.unavailable: dict[str, None] = {}
        self.allocated: tuple[str, ...] = ()
        self._hosts: dict[str, Located] = {}
        self._findings = self._names = 0

    def lines(self) -> Iterator[Line]:
        """Every line that is not empty, numbered from 1."""
        for number, text in enumerate(self.text.splitlines(), start=1):
            if text.strip():
                yield Line(number, text)

    def span(self, line: int = 1, column: int = 1, length: int = 1) -> Span:
        """A place in this file."""
        return Span(self.file, line, column, max(length, 1))

    def refuse(self, code: str, finding: Finding | str, span: Span) -> None:
        """Report an error; nothing comes of the file."""
        self.sound = False
        self.say(code, finding, span)

    def say(self, code: str, finding: Finding | str, span: Span) -> None:
        """Report a finding, the first ones of a file only."""
        self._findings += 1
        if self._findings <= MOST_FINDINGS:
            self.sink.report(code, finding, span=span)

    def names(self, text: str, span: Span) -> list[str]:
        """Names of a host list that starts at ``span``; H01 or H09 where it cannot be read."""
        try:
            found = expand(text, MOST_HOSTS - self._names)
        except HostlistError as error:
            code = "H09" if isinstance(error, TooManyHosts) else "H01"
            message = f"host list {text[:60]!r}: {error.message}"
            place = Span(self.file, span.line, span.column + error.column - 1, error.length)
            self.refuse(code, Finding(message, error.message), place)
            return []
        self._names += len(found)
        return found

    def place(self, host: Located) -> None:
        """Take a host; I02 for a bad name, I03 where it already stands in another place.

        A host without a name is left: that it has none was reported where it was looked for.
        """
        if not host.name:
            self.sound = False
            return
        if not HOST_NAME.fullmatch(host.name) or len(host.name) > LONGEST_NAME:
            legal = "letters, digits, dot, dash and underscore, a letter or digit first"
            finding = Finding(f"{host.name[:60]!r} cannot be a host name", help=legal)
            self.refuse("I02", finding, host.span)
            return
        known = self._hosts.setdefault(host.name, host)
        if (known.path, known.nvlink_domain) == (host.path, host.nvlink_domain):
            return
        finding = Finding(
            f"host {host.name} stands in two places",
            label=f"here under {shown_place(host)}",
            causes=(Cause("", f"here under {shown_place(known)}", known.span),),
        )
        self.refuse("I03", finding, host.span)

    @property
    def hosts(self) -> tuple[Located, ...]:
        """Hosts so far, in the order of the file."""
        return tuple(self._hosts.values())

    def fragment(self) -> Fragment | None:
        """All that was read; None after an error."""
        if not self.sound:
            return None
        unavailable = tuple(name for name in self.unavailable if name in self._hosts)
        notes = tuple(self.notes)
        return Fragment(
            self.hosts, unavailable, self.spec, self.spans, notes, allocated=self.allocated
        )


def shown_place(host: Located) -> str:
    """``leaf1, core, NVLink domain d1``."""
    parts = [*host.path] + ([f"NVLink domain {host.nvlink_domain}"] if host.nvlink_domain else [])
    return ", ".join(part[:40] for part in parts) or "no switch"


def some(names: list[str], most: int = 3) -> str:
    """``n1, n2, n3 and 5 more``."""
    more = len(names) - most
    return ", ".join(name[:60] for name in names[:most]) + (f" and {more} more" if more > 0 else "")
