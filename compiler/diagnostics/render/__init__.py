"""Render diagnostics as text for terminals, and as JSON, SARIF or GitHub commands for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Literal, cast

from parc.compiler.diagnostics.sink import Sink

Format = Literal["text", "json", "sarif", "github"]

RENDERERS: dict[Format, str] = {
    "text": "parc.compiler.diagnostics.render.text",
    "json": "parc.compiler.diagnostics.render.json_document",
    "sarif": "parc.compiler.diagnostics.render.sarif",
    "github": "parc.compiler.diagnostics.render.github",
}
"""Format -> module with ``render(sinks, color)``, imported on first use to keep start-up short."""


def render(sinks: Sequence[Sink], style: Format = "text", *, color: bool = False) -> str:
    """Return the diagnostics of all ``sinks`` in the output format ``style``.

    There is one sink per spec. The result ends in a newline. Without diagnostics, the result is
    empty in the formats text and github.
    """
    renderer = cast(Callable[[Sequence[Sink], bool], str], import_module(RENDERERS[style]).render)
    return renderer(sinks, color)
