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


def _workflow_command(found: Diagnostic, file: str) -> str:
    properties = {"title": found.code, "file": found.span.file if found.span else file}
    if found.span:
        properties |= {
            "line": str(found.span.line),
            "col": str(found.span.column),
            "endColumn": str(found.span.column + found.span.length),
        }
    joined = ",".join(f"{name}={_escape_property(value)}" for name, value in properties.items())
    return f"::{COMMANDS[found.severity]} {joined}::{_escape_message(_message_text(found))}"


def _message_text(found: Diagnostic) -> str:
    finding = found.finding
    parts = [finding.message, finding.label]
    parts += [f"help: {finding.help}"] if finding.help else []
    parts += [f"fix: {finding.fix}"] if finding.fix else []
    return "\n".join(part for part in parts if part)


def _escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_message(text).replace(":", "%3A").replace(",", "%2C")
