"""A name of the spec to its catalog entry, or a diagnostic with the nearest names."""

from __future__ import annotations

from typing import Any

from parc.compiler.catalog.library import Library
from parc.compiler.diagnostics import Finding, Sink

WORDS = {
    "clusters": "cluster",
    "fabrics": "fabric",
    "gpus": "GPU",
    "models": "model",
    "nodes": "node type",
}
"""Kind of the catalog -> what one entry is called."""


def look_up(kind: str, name: str, library: Library, sink: Sink, at: str) -> dict[str, Any] | None:
    """The entry, or None after K01 at ``at`` with at most three near names."""
    try:
        return library.entry(kind, name)
    except KeyError:
        sink.report("K01", _unknown(kind, name, library.names(kind), at), at=at)
        return None


def _unknown(kind: str, name: str, names: tuple[str, ...], at: str) -> Finding:
    from difflib import get_close_matches

    near = get_close_matches(name[:100].lower(), names, n=3, cutoff=0.5)
    near = near or [other for other in names if name and other.startswith(name.lower())][:3]
    return Finding(
        message=f"the catalog has no {WORDS[kind]} {name[:100]!r}",
        label="no such entry",
        help=f"did you mean {' or '.join(near)}?" if near else f"see: parc catalog {kind}",
        fix=f"{at}: {near[0]}" if near else "",
    )
