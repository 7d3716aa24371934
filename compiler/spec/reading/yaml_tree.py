"""YAML text to a plain tree, with the position of every key and value.

The tree is built from the parser's events, so that limits hold before anything is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span
from parc.compiler.spec.reading.source import MAX_TEXT_BYTES
from parc.compiler.spec.reading.tree_builder import Refused, TreeBuilder

# YAML 1.2.2, section 5.1 (c-printable), less U+FFFD: the reader puts it where bytes are not UTF-8
_LEGAL = "\t\n\r\x20-\x7e"
_LEGAL_BEYOND_ASCII = "\x85\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffc\U00010000-\U0010ffff"
_BREAK = re.compile("\r\n|[\n\r\x85]")


@dataclass(frozen=True, slots=True)
class Tree:
    """A document as dict, list, str, int, float, bool and None, and where its parts stand."""

    value: Any
    values: dict[str, Span]
    keys: dict[str, Span]


def split_lines(text: str) -> tuple[str, ...]:
    """Lines of ``text`` as the YAML reader counts them."""
    return tuple(_BREAK.split(text))


def read_tree(text: str, file: str, sink: Sink, *, path: str = "") -> Tree | None:
    """Parse ``text``; None after a finding that leaves nothing to go on with.

    ``file`` is shown in positions; ``path`` is the spec path of the document (for ``--set``).
    """
    builder = TreeBuilder(file, path, sink)
    try:
        _refuse_text(text)
        for event in _events(text):
            builder.feed(event)
        value = builder.document()
    except Refused as refused:
        line, column = refused.at
        sink.report(refused.code, refused.finding, span=Span(file, line, column), at=path)
        return None
    return Tree(value, builder.values, builder.keys)


def _refuse_text(text: str) -> None:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if size > MAX_TEXT_BYTES:
        message = f"the text has more than {MAX_TEXT_BYTES} bytes"
        raise Refused("X14", Finding(message, help="a spec of 16,384 hosts has about 300 kB"))
    # A class that goes beyond ASCII takes milliseconds to compile: only for texts that do.
    legal = _LEGAL if text.isascii() else _LEGAL + _LEGAL_BEYOND_ASCII
    bad = re.search(f"[^{legal}]", text)
    if bad is None:
        return
    before = split_lines(text[: bad.start()])
    character = bad.group()
    message = f"character U+{ord(character):04X} is not allowed in YAML"
    if character == "\ufffd":
        message = "the bytes here are not UTF-8"
    finding = Finding(message, help="save the file as UTF-8 text without control characters")
    raise Refused("X06", finding, (len(before), len(before[-1]) + 1))


def _events(text: str) -> Iterator[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    at = (1, 1)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            at = (event.end_mark.line + 1, event.end_mark.column + 1)
            yield event
    except Refused:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (mark.line + 1, mark.column + 1) if mark else at
        raise Refused("X06", _syntax(error.problem or error.context or "", at, text), at) from error
    # The scanner lets others through: chr() of an escape, int() of a directive, an index past
    # the end. All of them are about the text.
    except Exception as error:
        finding = Finding("this is not YAML: it cannot be read after here", label=str(error)[:80])
        raise Refused("X06", finding, at) from error


def _syntax(problem: str, at: tuple[int, int], text: str) -> Finding:
    """What the parser says, and the edit that most often mends it."""
    line = split_lines(text)[at[0] - 1 : at[0]]
    help_ = ""
    if line and "\t" in line[0][: at[1]]:
        help_ = "YAML indents with spaces; replace the tab"
    elif "mapping values are not allowed" in problem:
        help_ = 'a value with ": " in it needs quotes; a nested key needs a line of its own'
    elif "could not find expected ':'" in problem or "block mapping" in problem:
        help_ = "every line of a mapping is `key: value`, indented like its neighbours"
    elif "cannot start any token" in problem:
        help_ = "quote a value that starts with @, ` or %"
    return Finding(f"this is not YAML: {problem[:200]}", help=help_)
