"""Evaluate the integer arithmetic of a shell, such as ``4 * HIDDEN``, within bounds."""

from __future__ import annotations

import re
from collections.abc import Callable

LONGEST = 200
"""Maximum length of an expression, in characters."""
_DEEPEST = 10
_LARGEST = 2**63 - 1
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,19})|(?P<name>[A-Za-z_]\w*)|\$\{(?P<braced>\w+)\}|\$(?P<plain>\w+)"
    r"|(?P<sign>&&|\|\||[=!<>]=|[-+*/%()<>!]))"
)
_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
"""Operators with two operands; later ones bind more strongly."""


class _Unknown(Exception):
    """The value is unknown, or the text is not an expression that this module supports."""


def evaluate_arithmetic(text: str, value: Callable[[str], int | None]) -> int | None:
    """Return the integer that ``text`` has in a shell; None if it is unknown.

    Args:
        text: expression, without ``$((`` and ``))``.
        value: function that returns the integer of a variable, or None.
    """
    if len(text) > LONGEST:
        return None
    try:
        return _Parser(text, value).parse()
    except _Unknown:
        return None


class _Parser:
    """Parser by recursive descent; the length of the text bounds its depth."""

    def __init__(self, text: str, value: Callable[[str], int | None]) -> None:
        self._value = value
        self._depth = 0
        self._tokens: list[tuple[str, str]] = []
        self._at = at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise _Unknown
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()

    def parse(self) -> int:
        """Return the value of the whole text."""
        result = self._operation(0)
        if self._at < len(self._tokens):
            raise _Unknown
        return result

    def _take(self, *signs: str) -> str:
        """Return the next token if it is one of ``signs``, and move on; empty otherwise."""
        if self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            if kind == "sign" and text in signs:
                self._at += 1
                return text
        return ""

    def _operation(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._operand(0)
        left = self._operation(level + 1)
        while sign := self._take(*_LEVELS[level]):
            left = _calculate(left, sign, self._operation(level + 1))
        return left

    def _operand(self, signs: int) -> int:
        if signs > 8 or self._at >= len(self._tokens):
            raise _Unknown
        sign = self._take("-", "+", "!", "(")
        if sign == "(":
            self._depth += 1
            if self._depth > _DEEPEST:
                raise _Unknown
            inner = self._operation(0)
            if not self._take(")"):
                raise _Unknown
            self._depth -= 1
            return inner
        if sign:
            inner = self._operand(signs + 1)
            return -inner if sign == "-" else inner if sign == "+" else int(not inner)
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            # A leading zero would make the number octal.
            if text.startswith("0") and text != "0":
                raise _Unknown
            return int(text)
        found = self._value(text) if kind != "sign" else None
        if found is None:
            raise _Unknown
        return found


def _calculate(left: int, sign: str, right: int) -> int:
    if sign in ("/", "%"):
        if right == 0:
            raise _Unknown
        # As in C, a quotient is rounded towards zero.
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    result: int = {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "&&": bool(left and right),
        "||": bool(left or right),
    }[sign]
    if abs(result) > _LARGEST:
        raise _Unknown
    return int(result)
