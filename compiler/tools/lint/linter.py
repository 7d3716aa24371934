"""Types of linters that backends declare, so that ``parc lint`` can check their launch files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from parc.backends.registry import all_declarations, reader_of_backend
from parc.compiler.ir.frozen import frozen
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import LintedScript, ScriptSink


@frozen
class ScriptLinter:
    """Linter of shell and batch scripts that start a framework."""

    recognizes: Callable[[LintedScript], bool]
    """Return True if the script starts the framework."""
    lint: Callable[[LintedScript, LintOptions, ScriptSink], list[SkippedRule]]
    """Report all findings; return the rules that need a fact which the script does not contain."""
    starts: Callable[[LintedScript], Sequence[Word]] = lambda _: ()
    """Return a word of each command that starts the framework. If there are several, ``lint`` gets
    each in a script without the others. Empty: the script as a whole describes one job."""
    lint_together: Callable[[LintedScript, ScriptSink], None] = lambda *_: None
    """Report conflicts between several commands of a script."""


@frozen
class ConfigLinter:
    """Linter of configuration files, which have no launch lines."""

    recognizes: Callable[[str], bool]
    """Return True if the text is a configuration file of the framework."""
    lint: Callable[[str, str, LintOptions, ScriptSink], None]
    """Report all findings in a text; the second argument is the name of the file."""


Linter = ScriptLinter | ConfigLinter


@cache
def linters_by_backend() -> dict[str, Linter]:
    """Return the linter of each backend that declares one, by the name of the backend."""
    declared = [one for one in all_declarations() if one.linter]
    return {one.name: reader_of_backend(one, one.linter, "LINTER") for one in declared}
