"""Result of the scan of a shell script: its words, its assignments and its control flow."""

from __future__ import annotations

from dataclasses import dataclass, field

from parc.compiler.diagnostics import Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.shell.word import Word

Place = tuple[int, int]
"""Line and column, from 1."""


@frozen
class Assignment:
    """Assignment of a variable, with its value."""

    name: str
    text: str
    span: Span
    is_certain: bool
    """True if every run of the script executes the assignment."""


@frozen
class StrayLine:
    """Line of flags that bash runs as a command of its own, although it seems to continue one."""

    words: tuple[Word, ...]
    before: Span
    """Position of what ends the command before: a comment, or a line without a backslash."""
    is_comment: bool


@dataclass
class ScannedScript:
    """Words of a script in order, and the parts of it that not every run executes."""

    words: list[Word] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    stray: list[StrayLine] = field(default_factory=list)
    undecided: list[tuple[Place, Place]] = field(default_factory=list)
    """(start, end) of the parts that not every run executes exactly once."""
    ambiguous: dict[str, tuple[Span, ...]] = field(default_factory=dict)
    """Variable whose value differs between runs -> positions of the assignments."""
    used: set[Span] = field(default_factory=set)
    """Positions of the assignments whose values the script uses."""
    used_in_branches: frozenset[str] = frozenset()
    """Variables that only some runs of the script use."""
