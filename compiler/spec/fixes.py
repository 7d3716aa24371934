"""Conversion of a fix, a line of text for the user, to overrides that apply it to the spec.

A fix of one of these forms can be applied without a user:

- ``layout.tp: 8`` sets a value, ``layout.tp: 8   (a remark)`` does the same,
- ``layout.tp: 8   (instead of layout.tensor)`` also removes a setting,
- ``remove layout.vpp, layout.pp`` removes settings; a text after a second comma, such as
  ``, so that PARC chooses the split``, or ``, or set a value``, is a remark,
- ``remove emit[1], and set layout.tp: 4, and set layout.pp: 2`` does both,
- ``rename jobs to job`` renames a key; its value, comments and place stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

from parc.compiler.diagnostics import Diagnostic, Sink
from parc.compiler.spec.rename_key import RENAME

_PATH = r"""[a-z_]\w*(?:\.[\w/-]+|\."[^"\\]*"|\[\d+\])*"""
_PATHS = re.compile(rf"{_PATH}(?:, (?!so |and |or ){_PATH})*")
_SET = re.compile(rf"({_PATH}): (\S.*?)(?:   \((instead of ({_PATH}))?[^()]*\))?")
_REMOVE = re.compile(rf"remove ({_PATHS.pattern})(?:, and set (?P<set>.*)|, (?:so that|or) .*)?")
_OPEN = re.compile(r"\.\.\.|<\w+>|/path/|\b(?:NAME|IMAGE|PATH|TAG|REGISTRY|ACCOUNT|QUEUE)\b")
"""Placeholders that a user must replace in the value of a fix."""


def overrides_of_fix(fix: str) -> tuple[str, ...]:
    """Return the overrides that apply the text ``fix`` to a spec: ``PATH=VALUE``, ``~PATH``, ...

    The result is empty if ``fix`` contains a placeholder, or is not a text such as ``PATH: VALUE``
    or ``remove PATH``.
    """
    if removal := _REMOVE.fullmatch(fix):
        removed = tuple(f"~{path}" for path in removal[1].split(", "))
        if removal["set"] is None:
            return removed
        added = [overrides_of_fix(setting) for setting in removal["set"].split(", and set ")]
        return tuple(chain(removed, *added)) if all(added) else ()
    if renamed := RENAME.fullmatch(fix):
        return (f"~{renamed[1]}={renamed[2]}",)
    found = _SET.fullmatch(fix)
    if found is None or _OPEN.search(found[2]) or _is_prose(found[2]):
        return ()
    removed = (f"~{found[4]}",) if found[4] else ()
    return (*removed, f"{found[1]}={found[2]}")


def _is_prose(value: str) -> bool:
    """Return True if ``value`` contains an explanation, such as ``on, with tp above 1``."""
    bare = value[0] not in "[{\"'"
    return bare and ("," in value or " " in value)


MAX_TRIALS = 8
"""Largest number of fixes that are tried per spec, to bound the time of a failing check."""


def withdraw_failed_fixes(
    sink: Sink, attempt: Callable[[Sequence[str]], Sink], tried: tuple[str, ...] = ()
) -> None:
    """Try the fixes of the errors in ``sink``, and remove the fixes that do not work.

    A fix does not work if its error remains, or if it causes a new error at a value that it sets. A
    fix that cannot be applied to the spec stays. At most ``MAX_TRIALS`` fixes are tried.

    Args:
        sink: contains the errors with their fixes.
        attempt: function that returns the findings of the same spec with additional overrides.
        tried: spec paths of sections; fixes that edit these sections are not tried again and stay.
    """
    errors = [found for found in sink.diagnostics if found.severity == "error"]
    trials = [
        (found, edits)
        for found in errors
        if (edits := overrides_of_fix(found.finding.fix))
        and not edits[-1].removeprefix("~").startswith(tried)
    ]
    results: dict[tuple[str, ...], Sink] = {}
    for found, edits in trials:
        if edits not in results:
            if len(results) == MAX_TRIALS:
                return
            results[edits] = attempt(edits)
        if not is_fixed_by(found, edits, errors, results[edits].diagnostics):
            sink.withdraw_fix(found)


def is_fixed_by(
    diagnostic: Diagnostic,
    edits: Sequence[str],
    before: Sequence[Diagnostic],
    after: Sequence[Diagnostic],
) -> bool:
    """Return True if ``edits`` removed the error ``diagnostic`` and caused no new error.

    A new error counts only at an edited path or at the path of ``diagnostic``, which might have
    hidden the errors at other paths.

    Args:
        diagnostic: the error.
        edits: overrides that apply its fix.
        before: diagnostics of the spec without the edits.
        after: diagnostics of the spec with the edits.
    """
    edited = {text.removeprefix("~").partition("=")[0] for text in edits}
    # An error that moves from one target to another one is not fixed.
    watched = {*edited, diagnostic.path}
    known = {(one.code, one.path) for one in before}
    return not any(
        (one.code, one.path) == (diagnostic.code, diagnostic.path)
        or (one.severity == "error" and one.path in watched and (one.code, one.path) not in known)
        for one in after
    )
