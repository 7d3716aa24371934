"""Checks of shell text in a spec: ``launch.setup`` and the values of ``launch.env``."""

from __future__ import annotations

import re

from parc.compiler.diagnostics import Finding, Sink
from parc.compiler.diagnostics.secret_values import is_secret
from parc.compiler.ir import AnyPlan

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\u0085\u2028\u2029]")
"""Control characters; a tab is a blank of the shell."""
_EXPANSION = re.compile(r"\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)")
_HERE_DOCUMENT = re.compile(r"(?<!<)<<(?!<)")
_QUOTED = re.compile(
    r"""\\.|\$'(?:[^'\\]|\\.)*'|(?<!\$)'[^']*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`""", re.DOTALL
)
_SHOWN_CHARACTERS = 60


def check_setup_and_variables(plan: AnyPlan, sink: Sink) -> None:
    """Report findings about shell text that the user writes in the spec.

    The findings are: ``launch.setup`` contains commands (L29), such a command is incomplete (L30),
    a value of ``launch.env`` contains a shell variable that no shell expands (L31), or is a secret
    (L40).
    """
    launch = plan.problem.launch
    for index, line in enumerate(launch.setup):
        problem = find_setup_problem(line)
        if problem:
            text = f"launch.setup[{index}] {problem}: {line!r:.{_SHOWN_CHARACTERS}}"
            help_text = "write one complete command per entry, or put the commands into a script"
            sink.report("L30", Finding(text, help=help_text), at=f"launch.setup[{index}]")
    if launch.setup:
        count = len(launch.setup)
        text = f"{count} {'command' if count == 1 else 'commands'} of launch.setup will run"
        label = "each host runs the commands unchanged, with the rights of the user who submits"
        help_text = "read them before you compile a spec of someone else; PARC cannot check them"
        sink.report("L29", Finding(text, label, help=help_text), at="launch.setup")
    for name, value in launch.env:
        _check_expansion(name, value, sink)
        if is_secret(name, value):
            text = f"the emitted files contain the value of {name}"
            help_text = "the job can take the value from the environment in which it is submitted"
            fix = f"launch.env.{name}: {{from: environment}}"
            sink.report("L40", Finding(text, help=help_text, fix=fix), at=f"launch.env.{name}")


def find_setup_problem(line: str) -> str:
    """Return why the set-up command ``line`` would break the launch script; "" if it would not.

    The launch script contains the command unchanged. An open quote or a here-document would
    therefore swallow the commands after it.
    """
    if _CONTROL.search(line):
        return "contains a control character or a line break"
    if not line.strip():
        return "is empty"
    plain = _mask_quotes(line)
    if plain.endswith("\\"):
        return "ends with a backslash, which joins it with the next line"
    if re.search(r"['\"`]", plain):
        return "has an unbalanced quote"
    if _HERE_DOCUMENT.search(plain):
        return "starts a here-document, which would swallow the lines after it"
    return ""


def _mask_quotes(line: str) -> str:
    """Return the shell command ``line`` without its comment and with ``_`` for each quoted text.

    The function scans from left to right, because a comment can contain quotes and a quoted text
    can contain ``#``.
    """
    plain, at = "", 0
    while at < len(line):
        if line[at] == "#" and (not plain or plain[-1] in " \t;&|()"):
            break
        quoted = _QUOTED.match(line, at)
        plain += "_" if quoted else line[at]
        at = quoted.end() if quoted else at + 1
    return plain


def _check_expansion(name: str, value: str, sink: Sink) -> None:
    """Report a value of ``launch.env`` that contains a shell variable such as ``$HOME`` (L31).

    The launch script quotes these values, so no shell expands the variable.
    """
    found = _EXPANSION.search(value)
    if found is None:
        return
    whole = found[0] == value and value.strip("${}") == name
    shown, variable = repr(value)[:_SHOWN_CHARACTERS], found[0][:_SHOWN_CHARACTERS]
    text = f"{name} would be the text {shown}, not the value of {variable}"
    label = "values of launch.env are quoted, so no shell expands them"
    help_text = "" if whole else f"set {name} with an export in launch.setup"
    fix = f"launch.env.{name}: {{from: environment}}" if whole else ""
    finding = Finding(text, label, help=help_text, fix=fix)
    sink.report("L31", finding, at=f"launch.env.{name}")
