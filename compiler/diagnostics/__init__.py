"""Diagnostics: the table of codes, positions in the spec, the sink, and the renderers."""

from parc.compiler.diagnostics.finding import Cause, Diagnostic, Finding
from parc.compiler.diagnostics.positions import Positions, Span
from parc.compiler.diagnostics.sink import Sink

__all__ = ["Cause", "Diagnostic", "Finding", "Positions", "Sink", "Span"]
