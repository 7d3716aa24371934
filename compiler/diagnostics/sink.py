"""Collects diagnostics; the only effect that a pass may have."""

from __future__ import annotations

from dataclasses import replace

from parc.compiler.diagnostics.codes import code_info
from parc.compiler.ir.finding import Cause, Diagnostic, Finding, Severity
from parc.compiler.ir.positions import Positions, Span

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "advice": 2}


class Sink:
    """All findings of one run, in any order; ``diagnostics`` sorts them and drops twins."""

    def __init__(self, positions: Positions | None = None) -> None:
        """``positions`` turns spec paths into lines; it may be set later by the loader."""
        self.positions = positions or Positions()
        self._found: dict[Diagnostic, None] = {}

    def report(
        self,
        code: str,
        finding: Finding | str,
        *,
        at: str = "",
        key: bool = False,
        span: Span | None = None,
    ) -> None:
        """Add a finding.

        ``code`` is short (``D01``); ``at`` is a spec path, ``key`` points at the key instead of
        the value; ``span`` overrides what ``at`` resolves to.
        """
        if isinstance(finding, str):
            finding = Finding(finding)
        causes = tuple(self._locate(cause) for cause in finding.causes)
        self._found[
            Diagnostic(
                code=f"PARC-{code}",
                severity=code_info(code).severity,
                finding=replace(finding, causes=causes),
                path=at,
                span=span or self.positions.of(at, key=key),
            )
        ] = None

    def absorb(self, other: Sink) -> None:
        """Add all findings of ``other``."""
        self._found |= other._found

    def _locate(self, cause: Cause) -> Cause:
        """Give a cause its span, where the user wrote that path."""
        if cause.span is not None or not self.positions.written(cause.path):
            return cause
        return replace(cause, span=self.positions.of(cause.path))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Sorted by file, line, column, code."""
        return tuple(sorted(self._found, key=lambda diagnostic: diagnostic.order))

    def failed(self, level: Severity = "error") -> bool:
        """Whether anything at or above ``level`` was reported."""
        return any(RANK[found.severity] <= RANK[level] for found in self._found)
