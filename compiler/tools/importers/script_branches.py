"""Find the commands of a script that only some of its runs execute."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Collection

from parc.compiler.diagnostics import Span
from parc.compiler.tools.importers.shell_words import scan_script


class Branches:
    """Parts of a script that not every run executes exactly once.

    These are the branches of ``if`` and ``case`` whose conditions depend on the run, the bodies of
    loops, and the commands after ``||`` and after ``TEST &&``. Parts that no run executes, because
    a constant of the script rules them out, are included. A command after another ``&&``, such as
    ``cd folder && torchrun``, counts as executed in every run.
    """

    def __init__(self, text: str, file: str = "") -> None:
        """Find the branches of the script ``text``."""
        ranges = scan_script(text, file).undecided
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        self._certain: Collection[Span] = ()

    def without(self, spans: Collection[Span]) -> Branches:
        """Return the branches as if the words at ``spans`` were in none of them."""
        result = copy.copy(self)
        result._certain = spans
        return result

    def __contains__(self, span: Span) -> bool:
        """Return True if the word at ``span`` is in a branch."""
        if span in self._certain:
            return False
        place = span.line, span.column
        at = bisect_right(self._starts, place) - 1
        return at >= 0 and place < self._ends[at]
