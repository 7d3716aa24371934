"""The shape of a diagnostic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from parc.compiler.ir.positions import Span

Severity = Literal["error", "warning", "advice"]


@dataclass(frozen=True, slots=True)
class Cause:
    """A second place that matters: where the other number of the formula comes from."""

    path: str
    text: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says about one layout; the sink gives it a position and a severity."""

    message: str
    """One sentence, with the numbers: ``64 attention heads cannot be split over tp=6``."""
    label: str = ""
    """The formula with the numbers put in, printed under the culprit: ``64 % 6 = 4, must be 0``."""
    help: str = ""
    """The legal values."""
    fix: str = ""
    """The edit to make: ``layout.tp: 8``."""
    causes: tuple[Cause, ...] = ()
    targets: tuple[str, ...] = ()
    """Backends that care; empty: all."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding with code, severity and position."""

    code: str
    """``PARC-D01``: stable, never reused."""
    severity: Severity
    finding: Finding
    path: str
    span: Span | None

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """Sort key: file, line, column, code, message."""
        span = self.span or Span("", 0, 0)
        return (span.file, span.line, span.column, self.code, self.finding.message)

    def to_json(self) -> dict[str, Any]:
        """A mapping of JSON types."""
        from parc.compiler.ir.serialize import as_json

        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "span": as_json(self.span),
            **as_json(self.finding),
        }
