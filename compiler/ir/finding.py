"""Diagnostics as data: findings and the source positions to which they point.

Source positions: spans, and the map from spec paths to spans.

Findings: the finding of a rule, and the finding with its code and position.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Part of one line of a file. Lines and columns count from 1; ``file`` is shown unchanged."""

    file: str
    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Positions:
    """Map from spec paths (``cluster.racks[0].nodes``) to the spans of their values and keys.

    ``lines`` holds the text of each file for the renderers.
    """

    file: str = "<spec>"
    values: Mapping[str, Span] = field(default_factory=dict)
    keys: Mapping[str, Span] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def span_of(self, path: str, *, key: bool = False) -> Span | None:
        """Return the span of the value (or key) at ``path``.

        If the user did not write ``path``, return the span of its nearest parent in the file, or
        None if there is none.
        """
        table = self.keys if key else self.values
        while path:
            if path in table:
                return table[path]
            if path in self.keys:
                return self.keys[path]
            path = parent_path(path)
        return None

    def is_written(self, path: str) -> bool:
        """Return True if the user wrote ``path`` itself, not only a parent of it."""
        return path in self.values or path in self.keys

    def first_written(self, paths: Sequence[str]) -> str:
        """Return the first of ``paths`` that the user wrote; if there is none, the first path."""
        return next((path for path in paths if self.is_written(path)), paths[0])


def parent_path(path: str) -> str:
    """Return the parent of a spec path: ``a.b[2]`` -> ``a.b`` -> ``a`` -> ``""``."""
    shorter = re.sub(r"(\[\d+\]|\.?[^.\[\]]+)$", "", path)
    # Keys of users may contain any character, so the pattern may not match: stop at the root then.
    return shorter if len(shorter) < len(path) else ""


Severity = Literal["error", "warning", "advice"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Another place in the spec that contributes to the problem, with a text to print there."""

    path: str
    text: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Explanation of a broken rule, without position and severity, which the sink adds."""

    message: str
    """Problem with its numbers: ``64 attention heads cannot be split over tp=6``."""
    label: str = ""
    """Formula with its numbers, printed under the marked text: ``64 % 6 = 4, must be 0``."""
    help: str = ""
    """Valid values."""
    fix: str = ""
    """Suggested edit: ``layout.tp: 8``."""
    causes: tuple[Cause, ...] = ()
    targets: tuple[str, ...] = ()
    """Backends to which the problem applies; empty means all."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Finding with its code, severity and position."""

    code: str
    """``PARC-D01``. Codes are stable and never reused for another problem."""
    severity: Severity
    finding: Finding
    path: str
    span: Span | None

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        """File, line, column, code and message."""
        span = self.span or Span("", 0, 0)
        return (span.file, span.line, span.column, self.code, self.finding.message)

    def to_json(self) -> dict[str, Any]:
        """Return the diagnostic as a mapping of JSON types."""
        from parc.compiler.ir.serialize import as_json

        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "span": as_json(self.span),
            **as_json(self.finding),
        }
