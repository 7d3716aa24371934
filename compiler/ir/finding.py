"""Types of a diagnostic: the finding of a rule, and the finding with its code and position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from parc.compiler.ir.positions import Span

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
