"""Part of a spec that was read from a file of another tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parc.compiler.diagnostics import Span


@dataclass(frozen=True, slots=True)
class LocatedHost:
    """Host with its switches and its NVLink domain, as read from a file."""

    name: str
    path: tuple[str, ...]
    """Switches above the host, the leaf switch first; empty if the file lists no switches."""
    nvlink_domain: str | None
    span: Span


@dataclass(frozen=True, slots=True)
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
