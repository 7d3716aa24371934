"""``--set PATH=VALUE``: an edit of the tree before it is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from parc.compiler.diagnostics import Finding, Positions, Sink, Span
from parc.compiler.spec.reading.tree_builder import join
from parc.compiler.spec.reading.yaml_tree import Tree, read_tree

FILE = "--set"
"""The file that positions of overrides name; the n-th override is its n-th line."""

_PART = re.compile(r'\.?(?:([\w-]+)|"([^"\\]*)"|\[([0-9]{1,6})\])')
_NAMES = re.compile(r"model|cluster(\.(gpu|node|fabric))?")
"""Fields where a name can become a mapping with ``base:``."""
_FORM = "--set takes PATH=VALUE: layout.tp=4, cluster.racks[0].name=r01"
_MISSING = object()


class _Refused(Exception):
    """The path does not lead anywhere; the message says why."""


def apply_overrides(tree: Tree, overrides: Sequence[str], sink: Sink) -> Tree:
    """The tree with every override put in, later ones over earlier; bad ones are reported (X15)."""
    # aliases share nodes: the edit of one must not show in the other
    value = _unshared(tree.value) if overrides else tree.value
    values, keys = dict(tree.values), dict(tree.keys)
    for number, text in enumerate(overrides, start=1):
        path, equals, _ = text.partition("=")
        span = Span(FILE, number, 1, max(1, len(path)))
        parts = _parts(path)
        if not equals or not parts or "\n" in text:
            sink.report("X15", Finding(f"cannot read {text[:80]!r}", help=_FORM), span=span)
            continue
        where = _joined(parts)
        new = _value(text, number, where, sink)
        if new is None:
            continue
        try:
            _put(value, parts, new.value)
        except _Refused as refused:
            sink.report("X15", Finding(str(refused), help=_FORM), at=where, span=span)
            continue
        for table in (values, keys):
            _forget(table, where)
        values |= new.values
        keys |= {**_created(parts, span, values), **keys, **new.keys, where: span}
    return Tree(value, values, keys)


def with_overrides(positions: Positions, tree: Tree, overrides: Sequence[str]) -> Positions:
    """``positions`` with the spans of ``tree`` and the texts of the overrides as lines."""
    lines = {**positions.lines}
    if overrides:
        lines[FILE] = tuple(overrides)
    return Positions(positions.file, tree.values, tree.keys, lines)


def _value(text: str, number: int, where: str, sink: Sink) -> Tree | None:
    """The value of the override; padded so that its marks are those of line ``number``."""
    path, _, value = text.partition("=")
    padded = "\n" * (number - 1) + " " * (len(path) + 1) + value
    return read_tree(padded, FILE, sink, path=where)


def _parts(path: str) -> list[str | int]:
    """``cluster.racks[0].name`` -> cluster, racks, 0, name; empty where it is no path."""
    parts: list[str | int] = []
    at = 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None or (match.group().startswith(".") and (at == 0 or match.group(3))):
            return []
        word, quoted, index = match.groups()
        if at and index is None and not match.group().startswith("."):
            return []
        parts.append(int(index) if index is not None else word or quoted or "")
        at = match.end()
    return parts if parts and isinstance(parts[0], str) else []


def _joined(parts: Sequence[str | int]) -> str:
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else join(path, part)
    return path


def _put(tree: Any, parts: Sequence[str | int], value: Any) -> None:
    node = tree
    for depth, part in enumerate(parts[:-1], start=1):
        inner = _get(node, part, parts[: depth - 1])
        if inner is _MISSING or inner is None:
            if isinstance(parts[depth], int):
                raise _Refused(f"{_joined(parts[:depth])} is not written, so it has no entries")
            inner = {}
        if isinstance(inner, str) and _NAMES.fullmatch(_joined(parts[:depth])):
            inner = {"base": inner}
        node[part] = inner
        node = inner
    _get(node, parts[-1], parts[:-1])  # refuses what is no mapping or list
    node[parts[-1]] = value


def _get(node: Any, part: str | int, above: Sequence[str | int]) -> Any:
    """What stands at ``part``; ``_MISSING`` where a mapping lacks the key."""
    where = _joined(above)
    if isinstance(part, int):
        if not isinstance(node, list):
            raise _Refused(f"{where} is not a list")
        if part >= len(node):
            raise _Refused(f"{where} has no entry [{part}]; its length is {len(node)}")
        return node[part]
    if not isinstance(node, dict):
        raise _Refused(f"{where} is not a mapping, so {part} cannot be set in it")
    return node.get(part, _MISSING)


def _created(parts: Sequence[str | int], span: Span, values: dict[str, Span]) -> dict[str, Span]:
    """Positions of the mappings above the value that only the override wrote."""
    above = (_joined(parts[:depth]) for depth in range(1, len(parts)))
    return {path: span for path in above if path not in values}


def _forget(table: dict[str, Span], where: str) -> None:
    """Drop the spans at and below ``where``."""
    for path in [path for path in table if path == where or _below(path, where)]:
        del table[path]


def _below(path: str, where: str) -> bool:
    return path.startswith((f"{where}.", f"{where}["))


def _unshared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unshared(inner) for key, inner in value.items()}
    return [_unshared(inner) for inner in value] if isinstance(value, list) else value
