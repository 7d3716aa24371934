"""Findings about a spec, reported as findings about the flags of a launch script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from parc.compiler.diagnostics import Cause, Finding, Positions, Sink, Span

_EDIT = re.compile(r"((?:layout|job|model)\.[\w.]+): ([\w.+-]+)(?:\s|$)")

SECTIONS = {
    "model": "the model",
    "cluster": "the cluster",
    "versions": "the version (--version)",
}
"""Section of the spec -> its name in messages about a script."""


class ScriptSink(Sink):
    """Sink that replaces spec paths by the flags that set them, at the lines of the script."""

    def __init__(self, name: str, text: str) -> None:
        """``name`` is shown in diagnostics; ``text`` gives the lines."""
        super().__init__(Positions(name, lines={name: tuple(text.splitlines())}))
        self.flags: Mapping[str, str] = {}
        """Spec field -> the flag that sets it."""
        self._first: Span | None = Span(name, 1, 1)

    def locate(self, spans: Mapping[str, Span], flags: Mapping[str, str], first: Span) -> None:
        """Add places and flags of spec fields.

        Args:
            spans: spec field -> place in the script.
            flags: spec field -> the flag that sets it.
            first: place of findings on fields that no flag sets.
        """
        old = self.positions
        self.positions = Positions(old.file, {**old.values, **spans}, old.keys, old.lines)
        self.flags = {**self.flags, **flags}
        self._first = first

    def report(
        self,
        code: str,
        finding: Finding | str,
        *,
        at: str = "",
        key: bool = False,
        span: Span | None = None,
    ) -> None:
        """Add a finding; its path becomes a flag, its fix an edit of the script."""
        if isinstance(finding, str):
            finding = Finding(finding)
        place = span or self.positions.span_of(at, key=key) or self._first
        causes = tuple(map(self._cause, finding.causes))
        shown = replace(finding, fix=self._edit(finding.fix), causes=causes)
        super().report(code, shown, at=self.flags.get(at, ""), span=place)

    def _cause(self, cause: Cause) -> Cause:
        """Name a cause without a place in the script by its flag, or in words."""
        section, _, rest = cause.path.partition(".")
        if not section or self.positions.span_of(cause.path) is not None:
            return cause
        words = self.flags.get(cause.path) or SECTIONS.get(section) or rest
        return replace(cause, path=words)

    def _edit(self, fix: str) -> str:
        """Turn ``layout.pp: 4`` into ``--pipeline-model-parallel-size 4``; empty without a flag."""
        if not re.match(r"(layout|job|model|cluster|launch|goals|versions)\b", fix):
            return fix
        match = _EDIT.match(fix)
        flag = self.flags.get(match[1]) if match else None
        if match is None or flag is None:
            return ""
        if match[2] in ("true", "false"):
            return flag if match[2] == "true" else f"remove {flag}"
        return f"{flag} {match[2]}"
