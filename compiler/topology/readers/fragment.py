"""What a file of another tool says, in the words of the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parc.compiler.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Located:
    """One host and where it stands."""

    name: str
    path: tuple[str, ...]
    """Switches, the leaf first; empty where the file does not say."""
    nvlink_domain: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Fragment:
    """Part of a spec: hosts with their places, and other keys as they stand in a spec."""

    hosts: tuple[Located, ...] = ()
    """Each host once, in the order of the file."""
    unavailable: tuple[str, ...] = ()
    """Hosts that the file calls down, drained or not ready."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """``{"cluster": {"node": {...}}, "layout": {...}}``."""
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Spec path -> where the file says it."""
    notes: tuple[str, ...] = ()
    """Sentences for the reader of the fragment: what stands for what, what is missing."""
    allocated: tuple[str, ...] = ()
    """The hosts that a job has; others that another file names are not meant."""
