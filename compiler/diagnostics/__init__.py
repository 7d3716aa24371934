"""Diagnostics: the table of codes, positions in the spec, the sink, and the renderers."""

from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Cause, Diagnostic, Finding, Positions, Span

__all__ = ["Cause", "Diagnostic", "Finding", "Positions", "Sink", "Span"]
