"""Where a value stands: spans, and the map from spec paths to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of one line. Lines and columns count from 1; ``file`` is shown as it is."""

    file: str
    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Positions:
    """Spec path (``cluster.racks[0].nodes``) -> span of its value and of its key.

    ``lines`` holds the text of each file, so that a renderer can show it.
    """

    file: str = "<spec>"
    values: Mapping[str, Span] = field(default_factory=dict)
    keys: Mapping[str, Span] = field(default_factory=dict)
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, path: str, *, key: bool = False) -> Span | None:
        """Span of the value (or key) at ``path``; of the nearest parent that is written."""
        table = self.keys if key else self.values
        while path:
            if path in table:
                return table[path]
            if path in self.keys:
                return self.keys[path]
            path = parent(path)
        return None

    def written(self, path: str) -> bool:
        """Whether the user wrote ``path`` itself."""
        return path in self.values or path in self.keys

    def culprit(self, paths: Sequence[str]) -> str:
        """The path to point at: the first of ``paths`` that the user wrote, else the first."""
        return next((path for path in paths if self.written(path)), paths[0])


def parent(path: str) -> str:
    """``a.b[2]`` -> ``a.b`` -> ``a`` -> ``""``."""
    shorter = re.sub(r"(\[\d+\]|\.?[^.\[\]]+)$", "", path)
    return shorter if len(shorter) < len(path) else ""  # a key may hold any character
