"""Render diagnostics as GitHub workflow commands, which GitHub shows as annotations.

Texts are escaped as in actions/toolkit, packages/core/src/command.ts: ``%``, CR and LF in the
message, and also ``:`` and ``,`` in a property.
"""

from __future__ import annotations

from collections.abc import Sequence

from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Diagnostic, Severity

COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "advice": "notice"}


def render(sinks: Sequence[Sink], color: bool) -> str:
    """Return one line with a GitHub workflow command per diagnostic; ``color`` has no effect."""
    return "".join(
        _workflow_command(found, sink.positions.file) + "\n"
        for sink in sinks
        for found in sink.diagnostics
    )


def _workflow_command(diagnostic: Diagnostic, file: str) -> str:
    properties = {
        "title": diagnostic.code,
        "file": diagnostic.span.file if diagnostic.span else file,
    }
    if diagnostic.span:
        properties |= {
            "line": str(diagnostic.span.line),
            "col": str(diagnostic.span.column),
            "endColumn": str(diagnostic.span.column + diagnostic.span.length),
        }
    joined = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return (
        f"::{COMMANDS[diagnostic.severity]} {joined}::{_escape_message(_message_text(diagnostic))}"
    )


def _message_text(diagnostic: Diagnostic) -> str:
    finding = diagnostic.finding
    parts = [finding.message, finding.label]
    parts += [f"help: {finding.help}"] if finding.help else []
    parts += [f"fix: {finding.fix}"] if finding.fix else []
    return "\n".join(part for part in parts if part)


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
