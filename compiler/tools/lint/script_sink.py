"""Findings about a spec, said in the words of a script: its flags, at their lines."""

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
"""Section of the spec -> what a script has in its place."""


class ScriptSink(Sink):
    """A sink whose spec paths are those that flags of a script stand for."""

    def __init__(self, name: str, text: str) -> None:
        """``name`` is shown in diagnostics; ``text`` gives the lines."""
        super().__init__(Positions(name, lines={name: tuple(text.splitlines())}))
        self.flags: Mapping[str, str] = {}
        """Path of the spec -> the flag that says it."""
        self._first: Span | None = Span(name, 1, 1)

    def locate(self, spans: Mapping[str, Span], flags: Mapping[str, str], first: Span) -> None:
        """Say where ``spans`` (path -> place) are, and by which ``flags`` (path -> flag).

        ``first`` is the place of what no flag says.
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
        """Add a finding; a path becomes its flag, an edit of the spec one of the script."""
        if isinstance(finding, str):
            finding = Finding(finding)
        place = span or self.positions.span_of(at, key=key) or self._first
        causes = tuple(map(self._cause, finding.causes))
        told = replace(finding, fix=self._edit(finding.fix), causes=causes)
        super().report(code, told, at=self.flags.get(at, ""), span=place)

    def _cause(self, cause: Cause) -> Cause:
        """A cause without a place of its own, by its flag or in words."""
        section, _, rest = cause.path.partition(".")
        if not section or self.positions.span_of(cause.path) is not None:
            return cause
        words = self.flags.get(cause.path) or SECTIONS.get(section) or rest
        return replace(cause, path=words)

    def _edit(self, fix: str) -> str:
        """``--pipeline-model-parallel-size 4`` for ``layout.pp: 4``; empty without such a flag."""
        if not re.match(r"(layout|job|model|cluster|launch|goals|versions)\b", fix):
            return fix
        match = _EDIT.match(fix)
        flag = self.flags.get(match[1]) if match else None
        if match is None or flag is None:
            return ""
        if match[2] in ("true", "false"):
            return flag if match[2] == "true" else f"remove {flag}"
        return f"{flag} {match[2]}"
