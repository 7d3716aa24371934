"""Diagnostics: the table of codes, the sink that collects findings, and the output formats."""

from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Cause, CodedFinding, Diagnostic, Finding, Span, SpecPositions

__all__ = ["Cause", "CodedFinding", "Diagnostic", "Finding", "Sink", "Span", "SpecPositions"]
