"""Here-documents of a shell script: texts that follow a command, up to a line with an end word."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from parc.compiler.ir.frozen import frozen

# ``<<<`` starts no here-document.
_HERE_DOCUMENT = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(\w{1,40})\1(?!\w)[^\n]*\n")
_END_WORD = re.compile(r"^[ \t]*(\w{1,40})$", re.M)
_BECOMES_SCRIPT = re.compile(r"\b(?:bash|sh|ssh|sbatch|srun|read)\b|\.(?:sh|sbatch|slurm)\b")
"""Matches the command of a here-document whose text is a script, or becomes one or a variable."""


@frozen
class HereDocument:
    """Here-document of a script."""

    start: int
    """Offset of ``<<``."""
    command: str
    """Line with ``<<``."""
    body_start: int
    """Offset of the document."""
    end: int
    """Offset after the end word."""
    is_script: bool
    """True if a shell runs the document."""


class HereDocuments:
    """Here-documents of a text.

    A here-document ends at the line that contains only its end word, indented or not. The lines
    that can end one are indexed, because a search per start of a here-document would take minutes
    for a text with thousands of starts and no end.
    """

    def __init__(self, text: str) -> None:
        """Prepare the search for here-documents in ``text``.

        Index the lines that consist of one word, because such a line can end a here-document.
        """
        self._text = text
        self._ends: dict[str, list[int]] = {}
        for match in _END_WORD.finditer(text) if "<<" in text else ():
            self._ends.setdefault(match[1], []).append(match.end())

    def here_document_at(self, offset: int) -> HereDocument | None:
        """Return the here-document whose ``<<`` is at ``offset``; None if none starts there."""
        match = _HERE_DOCUMENT.match(self._text, offset)
        return None if match is None else self._build_here_document(match)

    def __iter__(self) -> Iterator[HereDocument]:
        """Yield all here-documents of the text, except those inside another here-document."""
        at = 0
        while match := _HERE_DOCUMENT.search(self._text, at):
            found = self._build_here_document(match)
            if found is not None:
                yield found
            at = match.end() - 1 if found is None else found.end

    def _build_here_document(self, match: re.Match[str]) -> HereDocument | None:
        ends = self._ends.get(match[2], [])
        index = bisect_left(ends, match.end())
        if index == len(ends):
            return None
        line = self._text[self._text.rfind("\n", 0, match.start()) + 1 : match.end() - 1]
        is_script = self._text.startswith("#!", match.end()) or bool(_BECOMES_SCRIPT.search(line))
        return HereDocument(match.start(), line, match.end(), ends[index], is_script)
