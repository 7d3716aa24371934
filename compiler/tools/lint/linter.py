"""Linter that a backend declares, so that ``parc lint`` can check its launch files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from parc.backends.registry import all_declared
from parc.compiler.tools.lint.options import LintOptions, SkippedRule
from parc.compiler.tools.lint.script import Script, ScriptSink


@dataclass(frozen=True, slots=True)
class ScriptLinter:
    """Checks of a shell or batch script that starts the framework."""

    recognizes: Callable[[Script], bool]
    """Return True if the script starts the framework."""
    lint: Callable[[Script, LintOptions, ScriptSink], list[SkippedRule]]
    """Report all findings; return the rules that need a fact which the script does not contain."""


@dataclass(frozen=True, slots=True)
class ConfigLinter:
    """Checks of a configuration file, which is not a script and has no launch lines."""

    recognizes: Callable[[str], bool]
    """Return True if the text is a configuration file of the framework."""
    lint: Callable[[str, str, LintOptions, ScriptSink], None]
    """Report all findings in a text, given with its file name."""


Linter = ScriptLinter | ConfigLinter


@cache
def linters() -> dict[str, Linter]:
    """Return backend -> linter, for the backends that declare one."""
    declared = [one for one in all_declared() if one.linter]
    return {one.name: one.module(one.linter).LINTER for one in declared}
