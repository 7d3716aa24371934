"""Try the fixes of a script's findings, so that no fix leads to another error of the same flag.

The values that a rule offers satisfy only this rule: the layers may be divisible by ``pp 5``, but
not the GPUs. Each offered value is therefore set in the script, which is checked again. If the
value leads to another error, the nearest one that does not replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from parc.compiler.diagnostics import Diagnostic
from parc.compiler.tools.importers.shell_words import Word
from parc.compiler.tools.lint.script import LintedScript, ScriptSink

_SETTING = re.compile(r"(--?[A-Za-z][\w-]*) ([0-9]{1,9})")
"""Matches a fix that sets a flag to a number."""
_VALID = re.compile(r"(valid \w+(?: with [^:;]*)?: )((?:[0-9]+, )*[0-9]+)(?=$|;)")
"""Matches the values that satisfy one rule, in the help of a finding."""
MOST_TRIALS = 80
MOST_VALUES = 16
"""Maximum numbers of checks per script, and of other values per finding, that are tried."""
SMALL = 64
"""Largest number for which numbers that no rule lists are tried as well."""
Errors = set[tuple[str, str, str]]
"""(code, flag, flag that the fix sets) of each error in a script."""
Lint = Callable[[LintedScript, ScriptSink], object]


def try_fixes(script: LintedScript, lint: Lint, sink: ScriptSink) -> None:
    """Replace each fix of ``sink`` that leads to an error of its flag, or remove it.

    The listed valid values are reduced to those that satisfy the other rules as well.

    Args:
        script: the script.
        lint: function that reports the findings of a script to a sink.
        sink: contains the findings of ``script``.
    """
    settings = ((one, _SETTING.fullmatch(one.finding.fix)) for one in sink.diagnostics)
    tried = [(one, match) for one, match in settings if match and one.severity == "error"]
    trials = _Trials(script, lint, sink)
    for found, match in tried:
        _replace_fix(found, match[1], int(match[2]), trials)


class _Trials:
    """Results of the script with other values of its flags."""

    def __init__(self, script: LintedScript, lint: Lint, sink: ScriptSink) -> None:
        self.sink = sink
        self._script, self._lint = script, lint
        self._before = _errors(sink.diagnostics)
        self._after: dict[tuple[str, int], Errors | None] = {}
        self._sizes = {name for field, name in sink.flags.items() if field.startswith("layout.")}

    def is_fixed(self, found: Diagnostic, flag: str, value: int, strict: bool) -> bool:
        """Return True if ``value`` of ``flag`` fixes ``found``, or cannot be tried.

        Neither ``found`` nor any other error of the flag may remain. If ``strict`` is True, no
        error may be new; otherwise, no parallel size may have a new error.
        """
        if (flag, value) not in self._after:
            if len(self._after) >= MOST_TRIALS:
                return False
            edited = _with_value(self._script, self.sink, flag, value)
            trial = ScriptSink(self._script.name, self._script.text)
            if edited is not None:
                self._lint(edited, trial)
            self._after[flag, value] = None if edited is None else _errors(trial.diagnostics)
        after = self._after[flag, value]
        if after is None:
            return True
        codes = {(code, path) for code, path, _ in after}
        if (found.code, found.path) in codes or any(flag in names for _, *names in after):
            return False
        old = {(code, path) for code, path, _ in self._before}
        return not any(strict or path in self._sizes for _, path in codes - old)


def _replace_fix(found: Diagnostic, flag: str, value: int, trials: _Trials) -> None:
    """Replace the fix of ``found`` by the value nearest to ``value`` that fixes it."""
    listed = _VALID.search(found.finding.help)
    named = [int(one) for one in listed[2].split(", ")] if listed is not None else []
    small = range(1, SMALL + 1) if value <= SMALL else ()
    # Values that satisfy this rule come first, then the nearest ones.
    order = [value]
    for others in (named, small):
        order += sorted(set(others) - {*order}, key=lambda one: (abs(one - value), -one))
    order = order[: MOST_VALUES + 1]
    for strict in (True, False):
        good = next((one for one in order if trials.is_fixed(found, flag, one, strict)), None)
        if good is None:
            continue
        text = found.finding.help
        if listed is not None and len(named) <= MOST_VALUES:
            fitting = (one for one in named if trials.is_fixed(found, flag, one, strict))
            values = sorted({good, *fitting})
            text = text.replace(listed[0], listed[1] + ", ".join(map(str, values)))
        finding = replace(found.finding, fix=f"{flag} {good}", help=text)
        trials.sink.replace_finding(found, finding)
        return
    trials.sink.withdraw_fix(found)


def _errors(diagnostics: Iterable[Diagnostic]) -> Errors:
    return {
        (one.code, one.path, one.finding.fix.partition(" ")[0])
        for one in diagnostics
        if one.severity == "error"
    }


def _with_value(
    script: LintedScript, sink: ScriptSink, flag: str, value: int
) -> LintedScript | None:
    """Return ``script`` with another value of ``flag``; None if the script does not set it."""
    fields = [field for field, name in sink.flags.items() if name == flag]
    spans = {sink.positions.values[field] for field in fields if field in sink.positions.values}
    # A script can use another name of the flag, such as -tp.
    names = {word.text.partition("=")[0] for word in script.words if word.span in spans} or {flag}
    words: list[Word] = []
    replaced = False
    for word in script.words:
        name, equals, _ = word.text.partition("=")
        follows = bool(words) and words[-1].text in names and words[-1].is_flag
        if follows:
            words.append(replace(word, text=str(value)))
            replaced = True
        elif equals and name in names:
            words.append(replace(word, text=f"{name}={value}"))
            replaced = True
        else:
            words.append(word)
    return replace(script, words=tuple(words)) if replaced else None
