"""State of one file while it is read: hosts, spec keys and findings collected so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.diagnostics.secret_values import hide_secrets
from parc.compiler.ir.frozen import frozen
from parc.compiler.topology.host_list_findings import host_list_finding
from parc.compiler.topology.hostlist import (
    LONGEST_NAME,
    MOST_HOSTS,
    HostlistError,
    expand_host_list,
)

WRITTEN_BY_HAND = "correct the value, or remove the key"
"""Help for errors in configs, which people write."""
MOST_FINDINGS = 50
"""Largest number of findings per file. A file of the wrong format would have one per line."""
UNCHANGED = "use the unchanged output of the command that docs/import.md lists for this format"
LONGEST_TEXT = 1000
"""Most characters of a part of the file that a note lists."""
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@frozen
class LocatedHost:
    """Host with its switches and its NVLink domain, as read from a file."""

    name: str
    path: tuple[str, ...]
    """Switches above the host, the leaf switch first; empty if the file lists no switches."""
    nvlink_domain: str | None
    span: Span


@frozen
class HostLabels:
    """GPU types, partitions and instance type that a list of hosts states for a host."""

    gpu_types: tuple[str, ...] = ()
    """GPU types in the words of the file; empty if it names none."""
    partitions: tuple[str, ...] = ()
    """Partitions of Slurm with the host."""
    instance_type: str = ""
    """Instance type of a cloud; empty if unknown."""
    features: tuple[str, ...] = ()
    """Free words of the site for the host, one of which may be the GPU type or its memory."""

    @property
    def type_words(self) -> tuple[str, ...]:
        """GPU types or, if the list names none, the words one of which may be a GPU type."""
        return self.gpu_types or self.features


HostFilter = Callable[[HostLabels], bool]
"""Returns True for a host that can be part of the job."""


def keep_all(labels: HostLabels) -> bool:
    """Return True: the filter that accepts every host."""
    return True


@frozen
class Fragment:
    """Part of a spec: hosts with their switches, and other keys in the form of the spec."""

    hosts: tuple[LocatedHost, ...] = ()
    """Hosts without duplicates, in the order of the file."""
    unavailable: tuple[str, ...] = ()
    """Hosts that the file lists as down, drained or not ready."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the spec: ``{"cluster": {"node": {...}}, "layout": {...}}``."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Position in the file of each value, by the path of the value in the spec."""
    notes: tuple[str, ...] = ()
    """Notes for the user: assumptions that were made, values that are missing."""
    whole: bool = False
    """True if ``spec`` is a complete spec, which no other file can extend."""
    allocated: tuple[str, ...] = ()
    """Hosts allocated to a job. If this is not empty, hosts that only other files list are
    dropped."""
    left_out: tuple[str, ...] = ()
    """Hosts of the file that cannot be part of the job, such as hosts without GPUs. They are also
    dropped from other files."""
    labels: tuple[HostLabels, ...] = ()
    """Distinct labels of the hosts."""
    lists_nodes: bool = False
    """True for a list of the nodes of a cluster: hosts that no such list contains, such as login
    nodes of a topology, are dropped from other files."""


@frozen
class InputLine:
    """Line of a text, without its line end."""

    number: int
    text: str


class Reading:
    """Hosts, spec keys and findings that a reader has collected from one file."""

    def __init__(self, text: str, file: str, sink: Sink, hint: str = UNCHANGED) -> None:
        """Start to read the file ``file``, whose content is ``text``.

        ``hint`` is the help of errors in the file (I02) that have no help of their own.
        """
        self._hint = hint
        self.text, self.file, self.sink = text, file, sink
        self.is_valid = True
        self.notes: list[str] = []
        self.spec: dict[str, Any] = {}
        self.spans: dict[str, Span] = {}
        self.accounted: set[tuple[int, int]] = set()
        self.unavailable: dict[str, None] = {}
        self.allocated: tuple[str, ...] = ()
        self.left_out: dict[str, None] = {}
        self.labels: dict[HostLabels, None] = {}
        self.lists_nodes = False
        self._hosts: dict[str, LocatedHost] = {}
        self._findings = self._errors = self._names = 0

    def lines(self) -> Iterator[InputLine]:
        """Yield the non-empty lines of the file with their line numbers, counted from 1."""
        for number, text in enumerate(self.text.splitlines(), start=1):
            if text.strip():
                yield InputLine(number, text)

    def span(self, line: int = 1, column: int = 1, length: int = 1) -> Span:
        """Return a position in this file; lines and columns count from 1."""
        return Span(self.file, line, column, max(length, 1))

    def report_error(self, code: str, finding: Finding | str, span: Span) -> None:
        """Report an error in the file, so that ``fragment`` returns None.

        Other findings before it do not count, so that the reason of the missing fragment is always
        reported. After MOST_FINDINGS errors, further errors are ignored.
        """
        self.is_valid = False
        self._errors += 1
        if isinstance(finding, str):
            finding = Finding(finding)
        if code == "I02" and not finding.help:
            finding = replace(finding, help=self._hint)
        if self._errors <= MOST_FINDINGS:
            self.sink.report(code, finding, span=span)

    def report(self, code: str, finding: Finding | str, span: Span) -> None:
        """Report a finding that does not prevent the import.

        After MOST_FINDINGS findings in the file, further findings are ignored.
        """
        self._findings += 1
        if self._findings <= MOST_FINDINGS:
            self.sink.report(code, finding, span=span)

    def leave_out(self, text: str, span: Span, hint: str = "") -> None:
        """Report that ``text`` of the file is not carried over to the spec (I04).

        Values that look like secrets are hidden. A note with the line number is always added, even
        if the report itself is ignored after MOST_FINDINGS findings.
        """
        text = hide_secrets(text)
        finding = Finding(f"not carried over: {text[:80]}", help=hint)
        self.report("I04", finding, span)
        self.notes.append(f"not carried over, line {span.line}: {text[:LONGEST_TEXT]}")
        self.account(span)

    def account(self, span: Span) -> None:
        """Record that the word at ``span`` does not need to be reported as unread."""
        self.accounted.add((span.line, span.column))

    def expand_host_list(self, text: str, span: Span) -> list[str]:
        """Return the host names of the host list ``text``, which is at ``span`` in the file.

        Returns no names after an error: the list is malformed (H01) or has too many hosts (H09).
        """
        try:
            # The limit counts the names of all host lists of the file.
            found = expand_host_list(text, MOST_HOSTS - self._names)
        except HostlistError as error:
            code, finding = host_list_finding(text, error)
            place = Span(self.file, span.line, span.column + error.column - 1, error.length)
            self.report_error(code, finding, place)
            return []
        self._names += len(found)
        return found

    def add_host(self, host: LocatedHost) -> None:
        """Add a host; report an invalid name (I02).

        If the host was already added with other switches or another NVLink domain, this is reported
        (I03). A host without a name is ignored, because the missing name has already been reported.
        """
        if not host.name:
            self.is_valid = False
            return
        if not HOST_NAME.fullmatch(host.name) or len(host.name) > LONGEST_NAME:
            valid = "letters, digits, dot, dash and underscore; the first a letter or digit"
            finding = Finding(
                f"{host.name[:60]!r} is not a valid host name", help=f"valid characters: {valid}"
            )
            self.report_error("I02", finding, host.span)
            return
        known = self._hosts.setdefault(host.name, host)
        if (known.path, known.nvlink_domain) == (host.path, host.nvlink_domain):
            return
        finding = Finding(
            f"host {host.name} is listed below two different switches or NVLink domains",
            label=f"listed below {location_text(host)}",
            causes=(Cause("", f"listed below {location_text(known)}", known.span),),
        )
        self.report_error("I03", finding, host.span)

    @property
    def hosts(self) -> tuple[LocatedHost, ...]:
        """Return the hosts that were added so far, in the order of the file."""
        return tuple(self._hosts.values())

    def fragment(self) -> Fragment | None:
        """Return the content of the file as a fragment of a spec; None if an error was reported."""
        if not self.is_valid:
            return None
        unavailable = tuple(name for name in self.unavailable if name in self._hosts)
        notes = tuple(self.notes)
        return Fragment(
            self.hosts,
            unavailable,
            self.spec,
            self.spans,
            notes,
            allocated=self.allocated,
            left_out=tuple(self.left_out),
            labels=tuple(self.labels),
            lists_nodes=self.lists_nodes,
        )


def location_text(host: LocatedHost) -> str:
    """Return the switches and the NVLink domain of a host, such as ``leaf1, NVLink domain d1``."""
    parts = [*host.path] + ([f"NVLink domain {host.nvlink_domain}"] if host.nvlink_domain else [])
    return ", ".join(part[:40] for part in parts) or "no switch"


def summarize_names(names: list[str]) -> str:
    """Return the first three names as text, such as ``n1, n2, n3 and 5 more``."""
    more = len(names) - 3
    return ", ".join(name[:60] for name in names[:3]) + (f" and {more} more" if more > 0 else "")
