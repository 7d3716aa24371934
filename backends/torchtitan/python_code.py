"""Values of settings as Python source."""

from __future__ import annotations

from typing import Any


class PythonCode(str):
    """Expression that the module contains as it is, not as a literal text."""

    __slots__ = ()


def python_literal(value: Any) -> str:
    """Return ``value`` as Python source in ASCII.

    Texts are enclosed in double quotes unless they contain a double quote or a backslash.
    """
    if isinstance(value, PythonCode):
        return str(value)
    if isinstance(value, str):
        plain = ascii(value)
        return plain if '"' in plain or "\\" in plain else f'"{plain[1:-1]}"'
    # repr(inf) is "inf", which is not a Python expression.
    return 'float("inf")' if value == float("inf") else repr(value)
