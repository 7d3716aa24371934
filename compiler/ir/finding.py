"""Findings and diagnostics, and the positions in source files that they point to.

A rule returns a finding; a diagnostic is a finding with code, severity and position. A span is a
part of one line, and ``SpecPositions`` maps spec paths to spans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from parc.compiler.ir.frozen import frozen


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Part of one line of a file. Lines and columns count from 1.

    ``file`` is the name that is printed, unchanged.
    """

    file: str
    line: int
    column: int
    length: int = 1


@frozen
class SpecPositions:
    """Map from spec paths (``cluster.racks[0].nodes``) to the spans of their values and keys.

    ``lines`` contains the lines of each file, which the renderers print below a finding. For files
    in ``word_only``, the renderers print only the marked word: a spec can name any file of the
    machine, and the rest of that file may be secret.
    """

    file: str = "<spec>"
    values: Mapping[str, Span] = field(default_factory=dict)
    keys: Mapping[str, Span] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    word_only: frozenset[str] = frozenset()

    def span_at(self, path: str, *, key: bool = False) -> Span | None:
        """Return the span of the value, or of the key, at ``path`` in the spec file.

        If the file does not contain ``path``, return the span of its nearest parent in the file;
        None if the file contains no parent either.
        """
        table = self.keys if key else self.values
        while path:
            if path in table:
                return table[path]
            # A missing value is shown at the key of the mapping that should contain it.
            if path in self.keys:
                return self.keys[path]
            path = parent_path(path)
        return None

    def is_path_in_spec(self, path: str) -> bool:
        """Return True if the spec file contains ``path`` itself, not only a parent of ``path``."""
        return path in self.values or path in self.keys

    def first_path_in_spec(self, paths: Sequence[str]) -> str:
        """Return the first of ``paths`` that the spec file contains.

        If the file contains no such path, return the first of ``paths``.
        """
        return next((path for path in paths if self.is_path_in_spec(path)), paths[0])


def parent_path(path: str) -> str:
    """Return the parent of a spec path: ``a.b`` for ``a.b[2]``, ``a`` for ``a.b``.

    The parent of a top-level key is the empty path.
    """
    shorter = re.sub(r"(\[\d+\]|\.?[^.\[\]]+)$", "", path)
    # Keys of users may contain any character, so the pattern may not match: stop at the root then.
    return shorter if len(shorter) < len(path) else ""


Severity = Literal["error", "warning", "advice"]


@frozen
class Cause:
    """Second place in the spec that contributes to a problem, with the text to print there."""

    path: str
    text: str
    span: Span | None = None

    @property
    def is_pointer(self) -> bool:
        """True if the text only points to a line, such as ``the GPU is set here``.

        Such a cause is not shown without a line, because a default is not set anywhere.
        """
        return self.text.endswith(" here")


@frozen
class Finding:
    """Explanation of a problem for the user, without code, severity and position.

    The sink adds code, severity and position when a rule reports the finding.
    """

    message: str
    """Problem with its numbers, for example ``64 attention heads cannot be split over tp=6``."""
    label: str = ""
    """Formula with its numbers, printed below the marked text, for example ``64 % 6 = 4, must be
    0``."""
    help: str = ""
    """Text after ``help:``, usually the valid values."""
    fix: str = ""
    """Edit of the spec that solves the problem, for example ``layout.tp: 8``."""
    causes: tuple[Cause, ...] = ()
    targets: tuple[str, ...] = ()
    """Names of the backends that the problem applies to; empty if it applies to all."""


class CodedFinding(NamedTuple):
    """Finding with its diagnostic code and the spec path that it concerns."""

    code: str
    path: str
    finding: Finding


@frozen
class Diagnostic:
    """Finding together with its code, its severity and its position in the spec."""

    code: str
    """Code such as ``PARC-D01``. Codes are stable and are never reused for another problem."""
    severity: Severity
    finding: Finding
    path: str
    span: Span | None

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Sort key that orders diagnostics by file, line, column, code and message."""
        # Diagnostics without a position come first.
        span = self.span or Span("", 0, 0)
        return (span.file, span.line, span.column, self.code, self.finding.message)

    def to_json(self) -> dict[str, Any]:
        """Return the diagnostic as a dict that ``json.dumps`` accepts."""
        # Imported here, because a run without diagnostics in JSON does not need it.
        from parc.compiler.ir.serialize import as_json

        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "span": as_json(self.span),
            **as_json(self.finding),
        }
