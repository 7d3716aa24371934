"""Compare the fixed part of an emitted program with the program that a verifier expects."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.verify.shell_lines import ShellLine

CHANGED = "A18"
"""Diagnostic code for lines of a program that differ from the expected lines."""
CONTEXT = 60
"""Maximum number of characters of a line that a finding shows."""
SHOWN = 3
"""Maximum number of differences that are reported per file."""


def verify_program(
    file: str, found: Sequence[ShellLine], expected: Sequence[str], sink: Sink
) -> None:
    """Report lines of a program that are missing, changed, or not expected (A18).

    Args:
        file: path of the program, for positions.
        found: lines of the program.
        expected: text of each line that the program must have.
        sink: receives at most ``SHOWN`` findings.
    """
    texts = [line.text for line in found]
    if texts == list(expected):
        return
    blocks = SequenceMatcher(None, expected, texts, autojunk=False).get_opcodes()
    changes = [block for block in blocks if block[0] != "equal"]
    for _, first, last, start, end in changes[:SHOWN]:
        lines, missing = found[start:end], expected[first:last]
        number = (lines or found[start : start + 1] or found[-1:] or [ShellLine(1, "")])[0].number
        text = lines[0].text if lines else ""
        found_text, needed = cut_to_difference(text, missing[0] if missing else "")
        if not lines:
            message = f"a line is missing: {needed}"
        elif missing:
            message = f"line {number} was changed: expected {needed}, found {found_text}"
        else:
            message = f"line {number} is not in the emitted program: {found_text}"
        report_program_change(file, number, message, sink)


def report_program_change(file: str, line: int, message: str, sink: Sink) -> None:
    """Report that ``line`` of a program differs from what the plan needs (A18)."""
    help_text = "PARC emits fixed code around the settings of the plan; compile again to restore it"
    sink.report(CHANGED, Finding(message, help=help_text), span=Span(file, line, 1))


def cut_to_difference(found: str, needed: str) -> tuple[str, str]:
    """Return ``found`` and ``needed`` from the first differing word on, shortened for a finding."""
    start = _first_difference(needed, found) if found and needed else 0
    return shorten_for_finding(found, start), shorten_for_finding(needed, start)


def shorten_for_finding(text: str, start: int = 0) -> str:
    """Return ``text`` from the index ``start`` on, as one line that is shortened for a finding."""
    lead = "..." if start and text else ""
    rest = text[start : start + CONTEXT].replace("\n", " ")
    return f"{lead}{rest}{'...' if len(text) > start + CONTEXT else ''}"


def _first_difference(expected: str, found: str) -> int:
    """Return the index at which a finding begins to quote ``found``.

    This is the index of the first word that differs from ``expected``, or 0 if that word is near
    the start. A quotation of the whole text might hide a late difference, because a command over
    several lines counts as one long line.
    """
    if max(len(expected), len(found)) <= CONTEXT:
        return 0
    pairs = enumerate(zip(expected, found, strict=False))
    at = next((at for at, (one, other) in pairs if one != other), min(len(expected), len(found)))
    if at < CONTEXT // 2:
        return 0
    # The elements of a list of hosts are words too.
    return max(expected.rfind(sign, 0, at) for sign in " \n,") + 1
