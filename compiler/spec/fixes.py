"""The edits of a spec that a fix consists of, as overrides that apply them.

A fix is a line of text for the user. Lines of these forms can be applied without a user:

- ``layout.tp: 8`` sets a value, ``layout.tp: 8   (a remark)`` does the same,
- ``layout.tp: 8   (instead of layout.tensor)`` also removes a setting,
- ``remove layout.vpp, layout.pp`` removes settings; a text after a second comma, such as
  ``, so that PARC chooses the split``, or ``, or set a value``, is a remark,
- ``remove emit[1], and set layout.tp: 4`` does both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from parc.compiler.diagnostics import Diagnostic, Sink

_PATH = r"""[a-z_]\w*(?:\.[\w/-]+|\."[^"\\]*"|\[\d+\])*"""
_PATHS = re.compile(rf"{_PATH}(?:, (?!so |and |or ){_PATH})*")
_SET = re.compile(rf"({_PATH}): (\S.*?)(?:   \((instead of ({_PATH}))?[^()]*\))?")
_REMOVE = re.compile(rf"remove ({_PATHS.pattern})(?:, and set (?P<set>.*)|, (?:so that|or) .*)?")
_OPEN = re.compile(r"\.\.\.|<\w+>|/path/|\b(?:NAME|IMAGE|PATH|TAG|REGISTRY|ACCOUNT|QUEUE)\b")
"""Placeholders in a value that only the user can replace."""


def overrides_of_fix(fix: str) -> tuple[str, ...]:
    """Return the overrides (``PATH=VALUE``, ``~PATH``) that apply the text ``fix`` to a spec.

    The result is empty if ``fix`` has another form, or a placeholder for a value of the user.
    """
    if removal := _REMOVE.fullmatch(fix):
        removed = tuple(f"~{path}" for path in removal[1].split(", "))
        if removal["set"] is None:
            return removed
        added = overrides_of_fix(removal["set"])
        return (*removed, *added) if added else ()
    found = _SET.fullmatch(fix)
    if found is None or _OPEN.search(found[2]) or _is_prose(found[2]):
        return ()
    removed = (f"~{found[4]}",) if found[4] else ()
    return (*removed, f"{found[1]}={found[2]}")


def _is_prose(value: str) -> bool:
    """Return True if ``value`` is followed by words, such as ``on, with tp above 1``."""
    bare = value[0] not in "[{\"'"
    return bare and ("," in value or " " in value)


MAX_TRIALS = 8
"""Largest number of fixes that are tried per spec, to bound the time of a failing check."""


def withdraw_failed_fixes(
    sink: Sink, attempt: Callable[[Sequence[str]], Sink], tried: tuple[str, ...] = ()
) -> None:
    """Remove the fixes from the errors in ``sink`` that do not remove their error.

    Fixes that cause another error at a value that they set are removed too. ``attempt`` returns the
    findings of the same spec with further overrides. Fixes that cannot be applied mechanically,
    those after the first ``MAX_TRIALS``, and those of the sections ``tried`` stay.
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
        if not is_fixed(found, edits, errors, results[edits].diagnostics):
            sink.withdraw_fix(found)


def is_fixed(
    found: Diagnostic,
    edits: Sequence[str],
    before: Sequence[Diagnostic],
    after: Sequence[Diagnostic],
) -> bool:
    """Return True if ``edits`` removed ``found``, and caused no error there or at values they set.

    ``before`` and ``after`` are the diagnostics without and with the edits. Errors elsewhere that
    are new may have been hidden by ``found``, so they do not count.
    """
    edited = {text.removeprefix("~").partition("=")[0] for text in edits}
    # An error that moves from one target to another one is not fixed.
    watched = {*edited, found.path}
    known = {(one.code, one.path) for one in before}
    return not any(
        (one.code, one.path) == (found.code, found.path)
        or (one.severity == "error" and one.path in watched and (one.code, one.path) not in known)
        for one in after
    )
