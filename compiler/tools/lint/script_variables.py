"""Variables of a script that a user can set when the script starts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
"""Matches the use of a variable."""
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?[-=]")
"""Matches a variable with a default: ``${N:-8}``."""
_ASSIGNMENT = re.compile(r"\b([A-Za-z_]\w*)=")
_VALUE = re.compile(r"\S+")


class ScriptVariables:
    """Variables of one script; the script is searched once for all of them."""

    def __init__(self, text: str) -> None:
        """Find the defaults and the assignments in ``text``."""
        self._text = text
        self._with_default = frozenset(_DEFAULT.findall(text))
        self._values: dict[str, list[int]] = defaultdict(list)
        """Variable -> offsets of its values."""
        for match in _ASSIGNMENT.finditer(text):
            self._values[match[1]].append(match.end())
        self._used: dict[str, list[str]] = {}
        self._overridable: dict[tuple[str, ...], bool] = {}

    def may_be_set(self, names: Iterable[str]) -> bool:
        """Return True if one of ``names``, or a variable in their values, has a default."""
        key = tuple(names)
        if key not in self._overridable:
            self._overridable[key] = self._has_default(key)
        return self._overridable[key]

    def _has_default(self, names: Iterable[str]) -> bool:
        todo, seen = list(names), set[str]()
        while todo:
            name = todo.pop()
            if name in self._with_default:
                return True
            if name not in seen:
                seen.add(name)
                todo += self._names_in_values(name)
        return False

    def _names_in_values(self, name: str) -> list[str]:
        """Return the variables in all values that the script assigns to ``name``."""
        if name not in self._used:
            found: list[str] = []
            end = 0
            for start in self._values.get(name, ()):
                # A value can contain the text of another assignment: N=N=2.
                value = _VALUE.match(self._text, start) if start >= end else None
                if value is not None:
                    end = value.end()
                    found += VARIABLE.findall(value[0])
            self._used[name] = list(dict.fromkeys(found))
        return self._used[name]
