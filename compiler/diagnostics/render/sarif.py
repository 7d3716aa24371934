"""Render diagnostics as SARIF 2.1.0, the OASIS format for code scanning.

Only the properties that common viewers show are written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from parc.compiler.diagnostics.codes import code_info
from parc.compiler.diagnostics.sink import Sink
from parc.compiler.ir.finding import Cause, Diagnostic, Severity, Span

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "advice": "note"}


def render(sinks: Sequence[Sink], color: bool) -> str:
    """Return the diagnostics as the text of a SARIF log with one run; ``color`` has no effect."""
    from parc import __version__

    found = [(sink.positions.file, item) for sink in sinks for item in sink.diagnostics]
    codes = sorted({item.code for _, item in found})
    driver = {
        "name": "PARC",
        "semanticVersion": __version__,
        "rules": [_rule_properties(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        # Spans count characters; the default of SARIF is UTF-16 code units.
        "columnKind": "unicodeCodePoints",
        "results": [_result_properties(item, file, codes) for file, item in found],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, sort_keys=True) + "\n"


def _rule_properties(code: str) -> dict[str, Any]:
    info = code_info(code.removeprefix("PARC-"))
    return {
        "id": code,
        "shortDescription": {"text": info.title},
        "fullDescription": {"text": f"{info.rule}. {info.why}".strip()},
        "help": {"text": info.fix},
        "defaultConfiguration": {"level": LEVELS[info.severity]},
    }


def _result_properties(diagnostic: Diagnostic, file: str, codes: list[str]) -> dict[str, Any]:
    finding = diagnostic.finding
    notes = (finding.message, finding.label, finding.help, finding.fix)
    location: dict[str, Any] = {"physicalLocation": _physical_location(diagnostic.span, file)}
    if diagnostic.path:
        location["logicalLocations"] = [{"fullyQualifiedName": diagnostic.path}]
    return {
        "ruleId": diagnostic.code,
        "ruleIndex": codes.index(diagnostic.code),
        "level": LEVELS[diagnostic.severity],
        "message": {"text": "\n".join(note for note in notes if note)},
        "locations": [location],
        "relatedLocations": [_related_location(cause) for cause in finding.causes if cause.span],
    }


def _related_location(cause: Cause) -> dict[str, Any]:
    return {
        "physicalLocation": _physical_location(cause.span, ""),
        "message": {"text": cause.text or cause.path},
    }


def _physical_location(span: Span | None, file: str) -> dict[str, Any]:
    # surrogateescape gives the bytes of a file name that is not UTF-8.
    uri = quote(span.file if span else file, errors="surrogateescape")
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if span:  # SARIF's endColumn is the column after the last character
        physical["region"] = {
            "startLine": span.line,
            "startColumn": span.column,
            "endColumn": span.column + span.length,
        }
    return physical
