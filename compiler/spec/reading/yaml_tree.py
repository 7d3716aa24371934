"""Parser of YAML text into a plain tree, with the positions of all keys and values.

The tree is built from the events of a parser, so that size limits apply before aliases are
expanded. The parser is ruamel.yaml, or ``json_events`` for JSON: specs that programs pass as
mappings are JSON, and ruamel.yaml takes five times as long. The events of both are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.ir.frozen import frozen
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES
from parc.compiler.spec.reading.tree_builder import InvalidTextError, TreeBuilder

# YAML 1.2.2, section 5.1 (c-printable), without U+FFFD, which marks bytes that are not UTF-8
_PRINTABLE = "\t\n\r\x20-\x7e"
_PRINTABLE_BEYOND_ASCII = (
    "\x85\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffc\U00010000-\U0010ffff"
)
_BREAK = re.compile("\r\n|[\n\r\x85]")


@frozen
class SpecTree:
    """YAML document as plain Python values, with the spans of its keys and values.

    The values are dict, list, str, int, float, bool and None.
    """

    value: Any
    values: dict[str, Span]
    keys: dict[str, Span]


def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of ``text``, split at the line breaks that YAML defines."""
    return tuple(_BREAK.split(text))


def read_tree(text: str, file: str, sink: Sink, *, path: str = "") -> SpecTree | None:
    """Return the tree of a YAML text; None if the text is not valid YAML or exceeds a limit.

    ``file`` is the name that positions contain. ``path`` is the spec path of the document's root,
    which is not empty for an override (``--set``).
    """
    builder = TreeBuilder(file, path, sink)
    try:
        _check_characters(text)
        for event in _parser_events(text):
            builder.add_event(event)
        value = builder.document()
    except InvalidTextError as error:
        line, column = error.at
        sink.report(error.code, error.finding, span=Span(file, line, column), at=path)
        return None
    return SpecTree(value, builder.values, builder.keys)


def _check_characters(text: str) -> None:
    # Encoding the text is only needed if it has characters of several bytes.
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if size > MAX_TEXT_BYTES:
        message = f"the file is longer than {MAX_TEXT_BYTES} bytes"
        raise InvalidTextError(
            "X14", Finding(message, help="a spec that lists 16,384 hosts has about 300 kB")
        )
    # A character class beyond ASCII takes milliseconds to compile, so use it only if needed.
    allowed = _PRINTABLE if text.isascii() else _PRINTABLE + _PRINTABLE_BEYOND_ASCII
    bad = re.search(f"[^{allowed}]", text)
    if bad is None:
        return
    before = split_lines(text[: bad.start()])
    character = bad.group()
    message = f"character U+{ord(character):04X} is not allowed in YAML"
    if character == "\ufffd":
        message = "these bytes are not valid UTF-8"
    finding = Finding(message, help="save the file as UTF-8 text without control characters")
    raise InvalidTextError("X06", finding, (len(before), len(before[-1]) + 1))


def _parser_events(text: str) -> Iterator[Any]:
    found = None
    if text.startswith(("{", "[")):
        # Imported here, because compiling its patterns takes a millisecond.
        from parc.compiler.spec.reading.json_events import json_events

        found = json_events(text)
    return _yaml_events(text) if found is None else found


def _yaml_events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    at = (1, 1)
    try:
        # pure: the C parser implements YAML 1.1.
        for event in YAML(typ="safe", pure=True).parse(text):
            at = (event.end_mark.line + 1, event.end_mark.column + 1)
            yield event
    except InvalidTextError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (mark.line + 1, mark.column + 1) if mark else at
        finding = _explain_syntax(error.problem or error.context or "", at, text)
        if not finding.help and error.context_mark is not None:
            finding = replace(finding, help=_explain_open(error.context, error.context_mark))
        raise InvalidTextError("X06", finding, at) from error
    # For some invalid texts ruamel.yaml raises other exceptions: from chr() of an escape, int() of
    # a directive, or an index past the end.
    except Exception as error:
        finding = Finding(
            "this is not valid YAML: it cannot be parsed from here on", label=str(error)[:80]
        )
        raise InvalidTextError("X06", finding, at) from error


def _explain_open(context: str, start: Any) -> str:
    """Return a help text about a bracket or quotation mark at ``start`` that is not closed."""
    signs = {"flow": "bracket", "quoted scalar": "quotation mark"}
    sign = next((name for word, name in signs.items() if word in context), "")
    where = f"line {start.line + 1}, column {start.column + 1}"
    return f"the {sign} at {where} might not be closed" if sign else ""


def _explain_syntax(problem: str, at: tuple[int, int], text: str) -> Finding:
    """Return a finding with the parser's message, and the most likely correction as help."""
    line = split_lines(text)[at[0] - 1 : at[0]]
    help_ = ""
    if line and "\t" in line[0][: at[1]]:
        help_ = "replace the tab with spaces; YAML does not allow tabs as indentation"
    elif "mapping values are not allowed" in problem:
        help_ = 'put a value that contains ": " in quotes; put a nested key on a separate line'
    elif "could not find expected ':'" in problem or "block end" in problem:
        help_ = "write each line of a mapping as `key: value`, with equal indentation"
    elif "cannot start any token" in problem:
        help_ = "put a value that starts with @, ` or % in quotes"
    return Finding(f"this is not valid YAML: {problem[:200]}", help=help_)
