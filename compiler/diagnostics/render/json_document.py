"""The JSON form: one document, its version in ``format``; keys are only ever added."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from parc.compiler.diagnostics.sink import Sink

FORMAT = 1


def render(sinks: Sequence[Sink], color: bool) -> str:
    """``{"format": 1, "diagnostics": [...], "summary": {...}}``."""
    return json.dumps(document(sinks), indent=2, sort_keys=True) + "\n"


def document(sinks: Sequence[Sink]) -> dict[str, Any]:
    """The document as a mapping, for commands that put more into it."""
    found = [(sink, item) for sink in sinks for item in sink.diagnostics]
    counts = Counter(item.severity for _, item in found)
    return {
        "format": FORMAT,
        "diagnostics": [{"file": sink.positions.file, **item.to_json()} for sink, item in found],
        "summary": {
            "errors": counts["error"],
            "warnings": counts["warning"],
            "advice": counts["advice"],
        },
    }
