"""Word of a shell script, with its position."""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen

_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>]*>")


@frozen
class Word:
    """Word of a shell script, with variables expanded and quotes removed."""

    text: str
    span: Span
    statement: int
    """Index of the command, or of the array assignment, that contains the word."""
    variable: str = ""
    """Name of the variable whose quoted value contains the word: ``ARGS`` in ``ARGS="--tp 2"``.

    ``ARGS+`` if the value contains the earlier value: ``ARGS="$ARGS --pp 2"``.
    """
    outer: int = -1
    """``statement`` of the command that has the word in quotes: ``srun bash -c "..."``; or -1."""

    @property
    def dynamic(self) -> bool:
        """True if the shell, or a template engine, computes a part of the word at run time.

        A placeholder that users replace before they start the script counts as well.
        """
        computed = "$" in self.text or "`" in self.text or "{{" in self.text
        return computed or ("<" in self.text and _PLACEHOLDER.search(self.text) is not None)

    @property
    def is_flag(self) -> bool:
        """True for ``--tp`` and ``-tp``; False for ``-1`` and ``-``."""
        return re.match(r"--?[A-Za-z]", self.text) is not None
