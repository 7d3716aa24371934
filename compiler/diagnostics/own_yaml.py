"""PARC's own tables, read many times as fast as a whole YAML parser reads them.

They are written in a small part of YAML: block mappings and sequences, flow collections, plain and
quoted scalars of one line, ``>-`` and ``|``. Any other text goes to ruamel. A test holds both
readings of every table together. What users write is never read here: it needs positions.
"""

from __future__ import annotations

import re
from typing import Any

_KEY = re.compile(
    r"(?:((?:--)?[A-Za-z_](?:[^\s:#\[\]{},\"']| (?=\w))*)|\"([^\"\\]+)\"):(?: +(.*))?"
)
_QUOTED = re.compile(r"\"([^\"\\]*)\"|'([^']*)'")
_IN_FLOW = re.compile(r"[A-Za-z0-9_./(<=+-][^\[\]{},:#\"'\n]*")
_PLAIN = re.compile(r"[A-Za-z0-9_./(+-](?:[^:#]|:(?=\S)|(?<=\S)#)*")
_REST = re.compile(r"\s*(?:#.*)?")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
_ODD = re.compile(r"[-+.]?[0-9][0-9a-fA-F_.:xXoO+-]*|[-+]?\..*|[~=<].*")
"""Perhaps a date or a number of another base."""
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL"), None),
}


class _Unusual(Exception):
    """A form that is left to ruamel."""


def own_yaml(text: str) -> Any:
    """The tree of a table, of plain JSON types."""
    try:
        return _Lines(text).document()
    except _Unusual:
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load(text)


class _Lines:
    """Reads block structure line by line."""

    def __init__(self, text: str) -> None:
        if "\t" in text or "\r" in text:
            raise _Unusual
        self._lines = text.split("\n")
        self._at = 0

    def document(self) -> Any:
        """All of the text."""
        indent = self._next()
        tree = self._block(indent) if indent == 0 else None
        if tree is None or self._next() >= 0:
            raise _Unusual
        return tree

    def _next(self) -> int:
        """The indent of the next line with content; -1 at the end."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            plain = line.lstrip(" ")
            if plain and plain[0] != "#":
                return len(line) - len(plain)
            self._at += 1
        return -1

    def _block(self, indent: int) -> Any:
        if self._lines[self._at].startswith("- ", indent):
            return self._sequence(indent)
        tree: dict[str, Any] = {}
        while self._next() == indent:
            found = _KEY.fullmatch(self._lines[self._at], indent)
            key = found[1] or found[2] if found else ""
            if found is None or key in tree or key in _WORDS or key == "---":
                raise _Unusual
            self._at += 1
            tree[key] = self._value(found[3] or "", indent)
        return tree

    def _sequence(self, indent: int) -> list[Any]:
        items = []
        while self._next() == indent and self._lines[self._at].startswith("- ", indent):
            text = self._lines[self._at][indent + 2 :]
            self._at += 1
            items.append(self._inline(text, indent))
        return items

    def _value(self, text: str, indent: int) -> Any:
        if text in (">-", "|"):
            return self._scalar_block(text, indent)
        if text and text[0] != "#":
            return self._inline(text, indent)
        below = self._next()
        listed = below == indent and self._lines[self._at].startswith("- ", indent)
        return self._block(below) if below > indent or listed else None

    def _inline(self, text: str, indent: int) -> Any:
        if text[:1] in ("[", "{"):
            while text.count("[") + text.count("{") > text.count("]") + text.count("}"):
                if self._next() <= indent:
                    raise _Unusual
                text += " " + self._lines[self._at].strip(" ")
                self._at += 1
            value, end = _flow(text, 0)
        else:
            value, end = _scalar(text)
        if not _REST.fullmatch(text, end) or self._next() > indent:
            raise _Unusual
        return value

    def _scalar_block(self, style: str, indent: int) -> str:
        """``>-`` with its lines in one, ``|`` with one newline at the end."""
        lines = []
        depth = len(self._lines[self._at]) - len(self._lines[self._at].lstrip(" "))
        while self._at < len(self._lines) and depth > indent:
            line = self._lines[self._at]
            if line.strip(" ") and not line.startswith(" " * depth):
                break
            lines.append(line[depth:])
            self._at += 1
        while lines and not lines[-1]:
            lines.pop()
        folded = style == ">-"
        if not lines or (folded and any(not line or line[0] == " " for line in lines)):
            raise _Unusual
        return " ".join(lines) if folded else "\n".join(lines) + "\n"


def _scalar(text: str) -> tuple[Any, int]:
    """A scalar of one line, and where it ends."""
    if quoted := _QUOTED.match(text):
        return quoted[1] if quoted[1] is not None else quoted[2], quoted.end()
    plain = _PLAIN.match(text)
    if plain is None or text[plain.end() : plain.end() + 1] == ":" or text[:2] in ("- ", "-"):
        raise _Unusual
    return _typed(plain[0].rstrip(" ")), plain.end()


def _typed(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0].isalpha():
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _ODD.fullmatch(text):
        raise _Unusual
    return text


def _flow(text: str, at: int) -> tuple[Any, int]:
    """The collection that opens at ``at``, and where it ends."""
    mapping = text[at] == "{"
    items: list[Any] = []
    tree: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] not in ("]", "}"):
        item, at = _item(text, at)
        if mapping:
            if not isinstance(item, str) or item in tree or text[at : at + 2] != ": ":
                raise _Unusual
            tree[item], at = _item(text, _skip(text, at + 1))
        items.append(item)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] not in ("]", "}"):
            raise _Unusual
    if text[at] != "]}"[mapping]:
        raise _Unusual
    return (tree if mapping else items), at + 1


def _item(text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] in ("[", "{"):
        return _flow(text, at)
    if quoted := _QUOTED.match(text, at):
        return quoted[1] if quoted[1] is not None else quoted[2], quoted.end()
    plain = _IN_FLOW.match(text, at)
    if plain is None:
        raise _Unusual
    return _typed(plain[0].rstrip(" ")), plain.end()


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    if at >= len(text):
        raise _Unusual
    return at
