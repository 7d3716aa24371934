"""Parse PARC's own YAML tables (codes, catalog, flags), much faster than a full YAML parser.

The tables use a small subset of YAML: block mappings and sequences, flow collections, plain and
quoted scalars on one line, ``>-`` and ``|``. Any other text is parsed by ruamel. A test compares
both parsers on every table. Files of users are parsed elsewhere, because diagnostics need the
position of each value.
"""

from __future__ import annotations

import re
from typing import Any

_KEY = re.compile(
    r"(?:((?:--)?[A-Za-z_](?:[^\s:#\[\]{},\"']| (?=\w))*)|\"([^\"\\]+)\"|'([^']+)'):(?: +(.*))?"
)
_QUOTED = re.compile(r"\"([^\"\\]*)\"|'([^']*)'")
_PLAIN_IN_FLOW = re.compile(r"[A-Za-z0-9_./(<=+-][^\[\]{},:#\"'\n]*")
_PLAIN_IN_BLOCK = re.compile(r"[A-Za-z0-9_./(+-](?:[^:#]|:(?=\S)|(?<=\S)#)*")
_LINE_END = re.compile(r"\s*(?:#.*)?")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
_AMBIGUOUS = re.compile(r"[-+.]?[0-9][0-9a-fA-F_.:xXoO+-]*|[-+]?\..*|[~=<].*")
"""Matches scalars that YAML may read as a date, a special number, null or a merge key."""
_KEYWORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL"), None),
}


class _UnsupportedYamlError(Exception):
    """Raised for YAML outside the subset that this module parses. Such text is passed to ruamel."""


def parse_table(text: str) -> Any:
    """Return the content of a YAML table as JSON types.

    YAML outside the supported subset is parsed by ruamel, whose errors are raised for invalid YAML.
    """
    try:
        return _BlockParser(text).document()
    except _UnsupportedYamlError:
        # Imported here because ruamel is slow to import and PARC's own tables do not need it.
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load(text)


class _BlockParser:
    """Line-by-line parser of block mappings, sequences and scalars."""

    def __init__(self, text: str) -> None:
        # Tabs and carriage returns have special rules in YAML, and the tables contain none.
        if "\t" in text or "\r" in text:
            raise _UnsupportedYamlError
        self._lines = text.split("\n")
        self._line = 0

    def document(self) -> Any:
        """Parse the whole text and return its value."""
        indent = self._next_indent()
        tree = self._parse_block(indent) if indent == 0 else None
        if tree is None or self._next_indent() >= 0:
            raise _UnsupportedYamlError
        return tree

    def _next_indent(self) -> int:
        """Skip empty lines and comments. Return the indent of the next line, or -1 at the end."""
        while self._line < len(self._lines):
            line = self._lines[self._line]
            plain = line.lstrip(" ")
            if plain and plain[0] != "#":
                return len(line) - len(plain)
            self._line += 1
        return -1

    def _parse_block(self, indent: int) -> Any:
        if self._lines[self._line].startswith("- ", indent):
            return self._parse_sequence(indent)
        tree: dict[str, Any] = {}
        while self._next_indent() == indent:
            found = _KEY.fullmatch(self._lines[self._line], indent)
            key = found[1] or found[2] or found[3] if found else ""
            if found is None or key in tree or key in _KEYWORDS or key == "---":
                raise _UnsupportedYamlError
            self._line += 1
            tree[key] = self._parse_value(found[4] or "", indent)
        return tree

    def _parse_sequence(self, indent: int) -> list[Any]:
        items = []
        while self._next_indent() == indent and self._lines[self._line].startswith("- ", indent):
            text = self._lines[self._line][indent + 2 :]
            self._line += 1
            items.append(self._parse_inline(text, indent))
        return items

    def _parse_value(self, text: str, indent: int) -> Any:
        if text in (">-", "|"):
            return self._parse_text_block(text, indent)
        if text and text[0] != "#":
            return self._parse_inline(text, indent)
        # YAML allows a sequence with the same indent as its key.
        below = self._next_indent()
        listed = below == indent and self._lines[self._line].startswith("- ", indent)
        return self._parse_block(below) if below > indent or listed else None

    def _parse_inline(self, text: str, indent: int) -> Any:
        if text[:1] in ("[", "{"):
            # A flow collection can continue on the next lines until all its brackets are closed.
            while text.count("[") + text.count("{") > text.count("]") + text.count("}"):
                if self._next_indent() <= indent:
                    raise _UnsupportedYamlError
                text += " " + self._lines[self._line].strip(" ")
                self._line += 1
            value, end = _parse_flow(text, 0)
        else:
            value, end = _parse_scalar(text)
        if not _LINE_END.fullmatch(text, end) or self._next_indent() > indent:
            raise _UnsupportedYamlError
        return value

    def _parse_text_block(self, style: str, indent: int) -> str:
        """Return the text of a block scalar.

        In the style ``>-``, its lines are joined by spaces. In the style ``|``, they are unchanged.
        """
        lines = []
        depth = len(self._lines[self._line]) - len(self._lines[self._line].lstrip(" "))
        while self._line < len(self._lines) and depth > indent:
            line = self._lines[self._line]
            if line.strip(" ") and not line.startswith(" " * depth):
                break
            lines.append(line[depth:])
            self._line += 1
        while lines and not lines[-1]:
            lines.pop()
        folded = style == ">-"
        if not lines or (folded and any(not line or line[0] == " " for line in lines)):
            raise _UnsupportedYamlError
        return " ".join(lines) if folded else "\n".join(lines) + "\n"


def _parse_scalar(text: str) -> tuple[Any, int]:
    """Return (value, end offset) of the scalar at the start of ``text``.

    The end offset is the index of the first character after the scalar.
    """
    if quoted := _QUOTED.match(text):
        return quoted[1] if quoted[1] is not None else quoted[2], quoted.end()
    plain = _PLAIN_IN_BLOCK.match(text)
    if plain is None or text[plain.end() : plain.end() + 1] == ":" or text[:2] in ("- ", "-"):
        raise _UnsupportedYamlError
    return _plain_value(plain[0].rstrip(" ")), plain.end()


def _plain_value(text: str) -> Any:
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if text[0].isalpha():
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _AMBIGUOUS.fullmatch(text):
        raise _UnsupportedYamlError
    return text


def _parse_flow(text: str, offset: int) -> tuple[Any, int]:
    """Return (value, end offset) of the sequence or mapping in brackets at ``offset``."""
    mapping = text[offset] == "{"
    items: list[Any] = []
    tree: dict[str, Any] = {}
    offset = _skip_spaces(text, offset + 1)
    while text[offset : offset + 1] not in ("]", "}"):
        item, offset = _parse_flow_item(text, offset)
        if mapping:
            if not isinstance(item, str) or item in tree or text[offset : offset + 2] != ": ":
                raise _UnsupportedYamlError
            tree[item], offset = _parse_flow_item(text, _skip_spaces(text, offset + 1))
        items.append(item)
        offset = _skip_spaces(text, offset)
        if text[offset : offset + 1] == ",":
            offset = _skip_spaces(text, offset + 1)
        elif text[offset : offset + 1] not in ("]", "}"):
            raise _UnsupportedYamlError
    if text[offset] != "]}"[mapping]:
        raise _UnsupportedYamlError
    return (tree if mapping else items), offset + 1


def _parse_flow_item(text: str, offset: int) -> tuple[Any, int]:
    if text[offset : offset + 1] in ("[", "{"):
        return _parse_flow(text, offset)
    if quoted := _QUOTED.match(text, offset):
        return quoted[1] if quoted[1] is not None else quoted[2], quoted.end()
    plain = _PLAIN_IN_FLOW.match(text, offset)
    if plain is None:
        raise _UnsupportedYamlError
    return _plain_value(plain[0].rstrip(" ")), plain.end()


def _skip_spaces(text: str, offset: int) -> int:
    while text[offset : offset + 1] == " ":
        offset += 1
    if offset >= len(text):
        raise _UnsupportedYamlError
    return offset
