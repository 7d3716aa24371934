"""Render diagnostics as one JSON document.

Its key ``format`` is the version of the format. Later versions of PARC only add keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from parc.compiler.diagnostics.sink import Sink

FORMAT = 1


def render(sinks: Sequence[Sink], color: bool) -> str:
    """Return the diagnostics as the text of a JSON document; ``color`` has no effect."""
    return json.dumps(diagnostics_document(sinks), indent=2, sort_keys=True) + "\n"


def diagnostics_document(sinks: Sequence[Sink]) -> dict[str, Any]:
    """Return the JSON document as a mapping, to which commands can add keys.

    The mapping is ``{"format": 1, "diagnostics": [...], "summary": {...}}``.
    """
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
