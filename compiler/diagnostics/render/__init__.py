"""How diagnostics are shown: text for people, JSON, SARIF and GitHub lines for machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Literal, cast

from parc.compiler.diagnostics.sink import Sink

Format = Literal["text", "json", "sarif", "github"]

FORMATS: dict[Format, str] = {
    "text": "parc.compiler.diagnostics.render.text",
    "json": "parc.compiler.diagnostics.render.json_document",
    "sarif": "parc.compiler.diagnostics.render.sarif",
    "github": "parc.compiler.diagnostics.render.github",
}
"""format -> module with ``render(sinks, color)``; loaded on first use."""


def render(sinks: Sequence[Sink], style: Format = "text", *, color: bool = False) -> str:
    """All diagnostics of ``sinks`` (one sink a spec) in one text that ends in a newline.

    Empty where there is nothing to say: text and github without a diagnostic.
    """
    show = cast(Callable[[Sequence[Sink], bool], str], import_module(FORMATS[style]).render)
    return show(sinks, color)
