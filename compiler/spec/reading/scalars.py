"""Values of YAML scalars in the YAML 1.2 core schema: ``yes``, dates and ``1_000`` are text."""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

MAX_DIGITS = 400
"""Maximum length of a number in characters. Python refuses to convert integers of more than 4300
digits."""

# YAML 1.2.2, section 10.3.2 (tag resolution of the core schema)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Control characters, line breaks other than the newline, and halves of surrogate pairs. Parsers of
the emitted formats (YAML, shell, TOML, CSV) disagree on whether U+0085, U+2028, U+2029 and a
carriage return end a line, so that a text with them cannot be emitted safely."""


def plain_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar: None, bool, int, float or text.

    Raises:
        ValueError: the number is infinite, NaN or too long.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    return _number_or_text(text)


def _number_or_text(text: str) -> Scalar:
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    # Checked before int(), which raises an error for much longer texts.
    if len(text) > MAX_DIGITS:
        if _FLOAT.fullmatch(text):
            raise ValueError(f"a number has {len(text)} characters, must have at most {MAX_DIGITS}")
        return text
    for pattern, base in ((_DECIMAL, 10), (_OCTAL, 8), (_HEX, 16)):
        if pattern.fullmatch(text):
            return int(text, base)
    if not _FLOAT.fullmatch(text):
        return text
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large for a 64-bit floating-point number")
    return value


def quoted_scalar(text: str) -> str:
    r"""Return the text of a quoted scalar, with surrogate pairs joined to one character.

    YAML that was written as JSON contains surrogate pairs, such as ``\ud83d\ude00``.

    Raises:
        ValueError: the text contains a control character, a line break other than the newline, or
            half of a surrogate pair.
    """
    if not _UNPRINTABLE.search(text):
        return text
    # UTF-16 joins surrogate pairs; a lone surrogate becomes U+FFFD.
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    found = _UNPRINTABLE.search(joined)
    if found is not None:
        raise ValueError(
            f"the value contains the control character or line break U+{ord(found[0]):04X}"
        )
    if "\ufffd" in joined:
        raise ValueError("the value contains half of a surrogate pair")
    return joined
