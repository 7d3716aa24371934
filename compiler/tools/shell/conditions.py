"""Decide the conditions of a script whose operands are constants: ``[ "$MODE" = train ]``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from parc.compiler.ir.frozen import frozen

_MOST_OPERANDS = 60
_LONGEST_PATTERN = 100
_NUMBERS = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")
_COMPARISONS = frozenset(("=", "==", "!=", "<", ">", "=~", "-ot", "-nt", "-ef", *_NUMBERS))


@frozen
class Operand:
    """Word of a condition, with variables expanded."""

    text: str
    is_sure: bool
    """False if the environment, an argument or an undecided branch may change the text."""


def negated(status: bool | None) -> bool | None:
    """Return the opposite of ``status``; None stays None."""
    return None if status is None else not status


def both(first: bool | None, second: bool | None) -> bool | None:
    """Return ``first and second``, where None stands for an unknown value."""
    if first is False or second is False:
        return False
    return True if first and second else None


def either(first: bool | None, second: bool | None) -> bool | None:
    """Return ``first or second``, where None stands for an unknown value."""
    return negated(both(negated(first), negated(second)))


def decide_command(words: Sequence[Operand]) -> bool | None:
    """Return True if a command succeeds, False if it fails, and None if this is not known."""
    if not words:
        return None
    name = words[0].text if words[0].is_sure else ""
    if name in ("true", ":") and len(words) == 1:
        return True
    if name == "false" and len(words) == 1:
        return False
    if name == "test":
        return _decide_test(words[1:], False)
    if name in ("[", "[[") and words[-1].text == {"[": "]", "[[": "]]"}[name]:
        return _decide_test(words[1:-1], name == "[[")
    return None


def matches_pattern(subject: Operand, pattern: Operand) -> bool | None:
    """Return True if ``subject`` matches a pattern of ``case``; None if this is not known."""
    if pattern.is_sure and pattern.text == "*":
        return True
    if not (subject.is_sure and pattern.is_sure) or len(pattern.text) > _LONGEST_PATTERN:
        return None
    if re.search(r"[?*+@!]\(", pattern.text):
        return None
    return fnmatchcase(subject.text, pattern.text.replace("[^", "[!"))


def _decide_test(words: Sequence[Operand], has_patterns: bool) -> bool | None:
    """Return the result of the words between ``[`` and ``]``.

    ``has_patterns`` is True for ``[[``, in which the right side of ``==`` is a pattern.
    """
    if not words or len(words) > _MOST_OPERANDS:
        return None
    for signs, combined in ((("||", "-o"), either), (("&&", "-a"), both)):
        at = next((n for n, one in enumerate(words) if one.text in signs and n > 0), None)
        if at is not None and at + 1 < len(words):
            return combined(
                _decide_test(words[:at], has_patterns), _decide_test(words[at + 1 :], has_patterns)
            )
    if words[0].text == "!" and len(words) > 1:
        return negated(_decide_test(words[1:], has_patterns))
    if not all(one.is_sure for one in words):
        return None
    texts = [one.text for one in words]
    if len(words) == 1:
        return texts[0] != ""
    if len(words) == 2 and texts[0] in ("-n", "-z"):
        return (texts[1] != "") == (texts[0] == "-n")
    if len(words) == 3 and texts[1] in _COMPARISONS:
        return _compare(words, has_patterns)
    return None


def _compare(words: Sequence[Operand], has_patterns: bool) -> bool | None:
    left, sign, right = (one.text for one in words)
    if sign in ("=", "==", "!="):
        same = matches_pattern(words[0], words[2]) if has_patterns else left == right
        return same if sign != "!=" else negated(same)
    if sign not in _NUMBERS or not all(re.fullmatch(r"-?\d{1,18}", one) for one in (left, right)):
        return None
    first, second = int(left), int(right)
    return {
        "-eq": first == second,
        "-ne": first != second,
        "-lt": first < second,
        "-le": first <= second,
        "-gt": first > second,
        "-ge": first >= second,
    }[sign]
