"""Diagnostics: the table of codes, the sink that collects findings, and the output formats."""

from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Cause, Diagnostic, Finding, Positions, Span

__all__ = ["Cause", "Diagnostic", "Finding", "Positions", "Sink", "Span"]
