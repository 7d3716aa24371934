"""Builder of a plain tree with positions from the events of a YAML parser, with size limits."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from parc.compiler.diagnostics import Cause, Finding, Sink, Span
from parc.compiler.spec.reading.scalars import plain_scalar, quoted_scalar

MAX_VALUES = 100_000
"""Maximum number of values after alias expansion; each 100 characters of a text count as one more
value."""
MAX_DEPTH = 64
"""Maximum nesting depth of the document. A valid spec has at most 6 levels."""
MAX_KEY = 200
"""Maximum length of a key in characters. The longest valid keys are names of environment
variables."""

_PLAIN_KEY = re.compile(r"[\w-]+")
_TEXT_TAG = "tag:yaml.org,2002:str"
_MERGE = object()
"""Marker for the merge key ``<<``."""


class InvalidTextError(Exception):
    """Error: the text cannot be a spec; ``at`` is the position as (line, column), from 1."""

    def __init__(self, code: str, finding: Finding, at: tuple[int, int] = (1, 1)) -> None:
        """Create the exception for ``finding``, which the caller reports to the sink.

        ``at`` is the position (line, column) in the text.
        """
        super().__init__(finding.message)
        self.code, self.finding, self.at = code, finding, at


def join_path(path: str, key: str) -> str:
    """Return the spec path of ``key`` below ``path``, such as ``cluster.racks``.

    Keys with special characters are quoted.
    """
    text = key if _PLAIN_KEY.fullmatch(key) else json.dumps(key)
    return f"{path}.{text}" if path else text


@dataclass(slots=True)
class _OpenCollection:
    """Mapping or list whose entries are still being read."""

    node: dict[str, Any] | list[Any]
    path: str
    value_path: str
    """Spec path of the next value."""
    start: Any
    """Event that began the mapping or list."""
    values_before: int
    key: object = None
    height: int = 1
    written: dict[str, Span] = field(default_factory=dict)
    merged: list[dict[str, Any]] = field(default_factory=list)


class TreeBuilder:
    """Builder of a plain tree: call ``add_event`` for each parser event, then ``document``."""

    def __init__(self, file: str, path: str, sink: Sink) -> None:
        """Start an empty tree whose root has the spec path ``path``.

        Duplicate keys are reported to ``sink`` at positions in ``file``.
        """
        self.values: dict[str, Span] = {}
        self.keys: dict[str, Span] = {}
        self._file, self._path, self._sink = file, path, sink
        self._frames: list[_OpenCollection] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._documents: list[Any] = []
        self._values = 0

    def document(self) -> Any:
        """Return the finished tree; None if the text is empty."""
        return self._documents[0] if self._documents else None

    def add_event(self, event: Any) -> None:
        """Add the content of the next parser event to the tree.

        Raises:
            InvalidTextError: a limit is exceeded, or a spec cannot contain this kind of event.
        """
        kind = type(event).__name__
        if kind == "DocumentStartEvent" and self._documents:
            raise InvalidTextError(
                "X06",
                Finding("the file must contain one YAML document; a second one starts here"),
                _start_position(event),
            )
        if kind == "ScalarEvent":
            self._feed_scalar(event)
        elif kind == "AliasEvent":
            self._feed_alias(event)
        elif kind in {"MappingStartEvent", "SequenceStartEvent"}:
            self._open_collection(event, {} if kind == "MappingStartEvent" else [])
        elif kind in {"MappingEndEvent", "SequenceEndEvent"}:
            self._close_collection(event)

    def _feed_scalar(self, event: Any) -> None:
        # Long texts count as several values, because aliases could repeat them.
        self._count_values(1 + len(event.value) // 100, event)
        plain = event.style is None and event.tag is None
        if event.tag not in {None, "!", _TEXT_TAG}:
            raise InvalidTextError(
                "X06",
                Finding(f"the YAML tag {event.tag[:60]!r} is not allowed"),
                _start_position(event),
            )
        if self._expects_key():
            self._feed_key(event, plain)
            return
        value = _scalar_value(event, plain)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1 + len(event.value) // 100, 0)
        self._add_value(value, self._event_span(event), 0, event)

    def _feed_key(self, event: Any, plain: bool) -> None:
        frame = self._frames[-1]
        if len(event.value) > MAX_KEY:
            raise InvalidTextError(
                "X14",
                Finding(f"the key is longer than {MAX_KEY} characters"),
                _start_position(event),
            )
        if plain and event.value == "<<":
            frame.key, frame.value_path = _MERGE, join_path(frame.path, "<<")
            return
        value = _scalar_value(event, plain)
        key, span = event.value if plain else str(value), self._event_span(event)
        frame.key, frame.value_path = key, join_path(frame.path, key)
        if not isinstance(value, str):
            finding = Finding(f"the key {key or 'null'} must be text", fix=f'"{key}":')
            self._sink.report("X02", finding, at=frame.value_path, span=span)
        # YAML parsers usually let the last of two equal keys win silently.
        if key in frame.written:
            cause = Cause(frame.value_path, "the key appears here first", frame.written[key])
            finding = Finding(
                f"the key {key} appears twice", help="remove one of the two keys", causes=(cause,)
            )
            self._sink.report("X05", finding, at=frame.value_path, span=span)
            frame.value_path += " (again)"  # keep the positions of the first occurrence
            return
        frame.written[key] = self.keys[frame.value_path] = span

    def _feed_alias(self, event: Any) -> None:
        # The anchor is registered when its collection ends, so a self-reference is not found here.
        known = self._anchors.get(event.anchor)
        if known is None:
            inside = any(frame.start.anchor == event.anchor for frame in self._frames)
            what = "refers to itself" if inside else "refers to an anchor that is not defined above"
            raise InvalidTextError(
                "X06", Finding(f"the alias *{event.anchor[:60]} {what}"), _start_position(event)
            )
        value, values, height = known
        # An alias counts as all the values that it stands for ("billion laughs" attack).
        self._count_values(values, event)
        if self._expects_key():
            raise InvalidTextError(
                "X06", Finding("a YAML alias cannot be a key"), _start_position(event)
            )
        self._add_value(value, self._event_span(event), height, event)

    def _open_collection(self, event: Any, node: dict[str, Any] | list[Any]) -> None:
        self._count_values(1, event)
        if self._expects_key():
            raise InvalidTextError(
                "X06", Finding("a key must be text on a single line"), _start_position(event)
            )
        if event.tag not in {None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}:
            raise InvalidTextError(
                "X06",
                Finding(f"the YAML tag {event.tag[:60]!r} is not allowed"),
                _start_position(event),
            )
        path = self._next_path()
        self.values[path] = (
            self._event_span(event) if event.flow_style else self._block_span(event, path)
        )
        self._check_depth(len(self._frames) + 1, event)
        self._frames.append(_OpenCollection(node, path, path, event, self._values - 1))

    def _close_collection(self, event: Any) -> None:
        frame = self._frames.pop()
        if isinstance(frame.node, dict):
            for source in frame.merged:
                # Keys of the mapping itself take precedence over merged keys (YAML merge key type).
                frame.node.update({k: v for k, v in source.items() if k not in frame.node})
        if frame.start.anchor:
            values = self._values - frame.values_before
            self._anchors[frame.start.anchor] = (frame.node, values, frame.height)
        # A collection on a single line is marked as a whole, up to its closing bracket.
        if frame.start.flow_style and event.end_mark.line == frame.start.start_mark.line:
            line, column = _start_position(frame.start)
            length = event.end_mark.column + 1 - column
            self.values[frame.path] = Span(self._file, line, column, length)
        self._add_value(frame.node, self.values[frame.path], frame.height, event)

    def _add_value(self, value: Any, span: Span, height: int, event: Any) -> None:
        path = self._next_path()
        self._check_depth(len(self._frames) + height, event)
        self.values[path] = span
        if not self._frames:
            self._documents.append(value)
            return
        frame = self._frames[-1]
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.node, list):
            frame.node.append(value)
        elif frame.key is _MERGE:
            frame.merged.extend(_merged_mappings(value, event))
        else:
            frame.node.setdefault(str(frame.key), value)
        frame.key = None

    def _expects_key(self) -> bool:
        return bool(
            self._frames
            and isinstance(self._frames[-1].node, dict)
            and self._frames[-1].key is None
        )

    def _next_path(self) -> str:
        if not self._frames:
            return self._path
        frame = self._frames[-1]
        if isinstance(frame.node, list):
            return f"{frame.path}[{len(frame.node)}]"
        return frame.value_path

    def _count_values(self, values: int, event: Any) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            message = f"the file has more than {MAX_VALUES} values, with aliases expanded"
            finding = Finding(
                message, help="write the hosts of a rack as a host list, such as r01n[01-16]"
            )
            raise InvalidTextError("X14", finding, _start_position(event))

    @staticmethod
    def _check_depth(depth: int, event: Any) -> None:
        if depth > MAX_DEPTH:
            message = f"mappings and lists are nested more than {MAX_DEPTH} levels deep"
            raise InvalidTextError("X14", Finding(message), _start_position(event))

    def _block_span(self, event: Any, path: str) -> Span:
        """Return the position to show for a mapping or list that is written over several lines.

        This is the position of its key. A mapping or list without a key is shown by its first line.
        """
        return self.keys.get(path) or self._event_span(event)

    def _event_span(self, event: Any) -> Span:
        line, column = _start_position(event)
        end = event.end_mark
        one_line = event.start_mark.line == end.line
        if self._frames and one_line and end.column + 1 == column:  # an empty value
            return self.keys.get(self._next_path()) or Span(self._file, line, column)
        length = end.column + 1 - column if one_line else 1
        return Span(self._file, line, column, max(1, length))


def _scalar_value(event: Any, plain: bool) -> Any:
    try:
        return plain_scalar(event.value) if plain else quoted_scalar(event.value)
    except ValueError as error:
        raise InvalidTextError("X06", Finding(str(error)), _start_position(event)) from error


def _start_position(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _merged_mappings(value: Any, event: Any) -> list[dict[str, Any]]:
    """Return the mappings that a merge key ``<<`` merges.

    The value of the key is one mapping, or a list of mappings.

    Raises:
        InvalidTextError: the value is something else.
    """
    sources = value if isinstance(value, list) else [value]
    if all(isinstance(source, dict) for source in sources):
        return sources
    finding = Finding("the value of the merge key << must be a mapping or a list of mappings")
    raise InvalidTextError("X06", finding, _start_position(event))
