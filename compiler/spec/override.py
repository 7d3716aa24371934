"""Overrides of spec values: ``--set PATH=VALUE`` and ``--set ~PATH``; ``~PATH=KEY`` renames a key.

``apply_overrides`` changes the tree of a spec before validation. ``edit_text`` in ``edit_text.py``
writes overrides into the text of a spec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span, SpecPositions
from parc.compiler.spec.reading.tree_builder import join_path
from parc.compiler.spec.reading.yaml_tree import SpecTree, read_tree
from parc.compiler.spec.rename_key import rename_in_mapping, rename_spans

FILE = "--set"
"""File name in the positions of overrides; the n-th override is line n of this virtual file."""

_PART = re.compile(r'\.?(?:([\w-]+)|"([^"\\]*)"|\[([0-9]{1,6})\])')
_NAMES = re.compile(r"model|cluster(\.(gpu|node|fabric))?")
"""Spec paths at which the NAME of a catalog entry can replace a mapping. An override of a key below
such a path first replaces NAME by ``{base: NAME}``."""
_FORM = (
    "write --set PATH=VALUE, for example layout.tp=4 or cluster.racks[0].name=r01; "
    "--set '~PATH' removes a setting"
)
# A marker instead of None, because a key may be set to null.
_MISSING = object()
Path = Sequence[str | int]
PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")
"""Matches a key that YAML needs no quotes for."""


class _NoSuchPathError(Exception):
    """Error: the path of an override does not exist in the spec; the message gives the reason."""


def apply_overrides(tree: SpecTree, overrides: Sequence[str], sink: Sink) -> SpecTree:
    """Return the spec tree with all overrides applied in order; report invalid overrides (X15)."""
    # YAML aliases share nodes, and an override of one must not change the other
    value = copy_tree(tree.value) if overrides else tree.value
    values, keys = dict(tree.values), dict(tree.keys)
    for number, text in enumerate(overrides, start=1):
        path, equals, new_key = text.partition("=")
        span = Span(FILE, number, 1, max(1, len(path)))
        removes = text.startswith("~")
        parts = split_path(text[1:] if removes else path)
        old = split_path(path[1:])
        if removes and not parts and old and PLAIN_KEY.fullmatch(new_key):
            values, keys = _rename(value, old, new_key, (values, keys))
            continue
        if not (equals or removes) or not parts or "\n" in text:
            sink.report(
                "X15", Finding(f"--set {text[:80]!r} is not PATH=VALUE", help=_FORM), span=span
            )
            continue
        where = _join_path(parts)
        if removes:
            _remove_value_at_path(value, parts, (values, keys))
            continue
        new = _parse_value(text, number, where, sink)
        if new is None:
            continue
        try:
            _set_value_at_path(value, parts, new.value)
        except _NoSuchPathError as error:
            sink.report("X15", Finding(str(error), help=_FORM), at=where, span=span)
            continue
        # The old value is gone, and so are the positions inside it.
        for table in (values, keys):
            _remove_spans(table, where)
        values |= new.values
        keys |= {**_created_positions(parts, span, values), **keys, **new.keys, where: span}
    return SpecTree(value, values, keys)


def _rename(
    tree: Any, parts: Path, new: str, positions: tuple[dict[str, Span], dict[str, Span]]
) -> tuple[dict[str, Span], dict[str, Span]]:
    """Rename the key at the path ``parts`` to ``new``; return the tables with new paths."""
    node, path = tree, _join_path(parts)
    with suppress(_NoSuchPathError):
        for depth, part in enumerate(parts[:-1]):
            node = _get_child(node, part, parts[:depth])
        if isinstance(node, dict) and rename_in_mapping(node, str(parts[-1]), new):
            after = _join_path([*parts[:-1], new])
            return rename_spans(positions[0], path, after), rename_spans(positions[1], path, after)
    return positions


def replace_values(tree: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy of a plain ``tree`` with other ``values`` (spec path -> value)."""
    changed = copy_tree(tree)
    for path, value in values.items():
        _set_value_at_path(changed, split_path(path), value)
    return changed


def positions_with_overrides(
    positions: SpecPositions, tree: SpecTree, overrides: Sequence[str]
) -> SpecPositions:
    """Return ``positions`` updated for the spec after all overrides.

    The positions of values and keys come from ``tree``; the lines of the file of overrides are
    added.
    """
    lines = {**positions.lines}
    if overrides:
        lines[FILE] = tuple(overrides)
    return SpecPositions(positions.file, tree.values, tree.keys, lines, positions.word_only)


def _parse_value(text: str, number: int, where: str, sink: Sink) -> SpecTree | None:
    """Return the parsed value of an override; None if the value is not valid YAML.

    Args:
        text: the override, ``PATH=VALUE``.
        number: index of the override on the command line, starting at 1. Diagnostics show this
            index as the line number.
        where: spec path of the value.
        sink: receives the findings.
    """
    path, _, value = text.partition("=")
    # Spans of the parsed value then point into the virtual file of overrides.
    padded = "\n" * (number - 1) + " " * (len(path) + 1) + value
    return read_tree(padded, FILE, sink, path=where)


def split_path(path: str) -> list[str | int]:
    """Split a spec path into keys and indexes; empty if the text is not a spec path.

    For example, ``cluster.racks[0].name`` gives cluster, racks, 0, name.
    """
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


def _join_path(parts: Sequence[str | int]) -> str:
    path = ""
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else join_path(path, part)
    return path


def _set_value_at_path(tree: Any, parts: Sequence[str | int], value: Any) -> None:
    node = tree
    for depth, part in enumerate(parts[:-1], start=1):
        inner = _get_child(node, part, parts[: depth - 1])
        if inner is _MISSING or inner is None:
            if isinstance(parts[depth], int):
                raise _NoSuchPathError(
                    f"{_join_path(parts[:depth])} is not in the spec, so it has no entries"
                )
            inner = {}
        # For example, ``model: llama-3-8b`` with ``--set model.layers=4`` becomes
        # ``model: {base: llama-3-8b, layers: 4}``.
        if isinstance(inner, str) and _NAMES.fullmatch(_join_path(parts[:depth])):
            inner = {"base": inner}
        node[part] = inner
        node = inner
    _get_child(node, parts[-1], parts[:-1])  # raises if the parent is not a mapping or list
    node[parts[-1]] = value


def _remove_value_at_path(
    tree: Any, parts: Sequence[str | int], positions: tuple[dict[str, Span], dict[str, Span]]
) -> None:
    """Remove the value at the path ``parts`` from the tree, and its source positions.

    ``positions`` contains two tables, (spec path -> position of the value) and (spec path ->
    position of the key). Nothing changes if the tree has no value at this path.
    """
    node, last = tree, parts[-1]
    try:
        for depth, part in enumerate(parts[:-1]):
            node = _get_child(node, part, parts[:depth])
        if node is _MISSING or _get_child(node, last, parts[:-1]) is _MISSING:
            return
    except _NoSuchPathError:
        return
    del node[last]
    # After an entry of a list is removed, the later entries have other indexes.
    changed = _join_path(parts[:-1] if isinstance(last, int) else parts)
    for table in positions:
        for path in [path for path in table if is_path_below(path, changed)]:
            del table[path]
        if isinstance(last, str):
            table.pop(changed, None)


def _get_child(node: Any, part: str | int, parents: Sequence[str | int]) -> Any:
    """Return the value of key or index ``part`` in ``node``; ``_MISSING`` for an absent key.

    Raises:
        _NoSuchPathError: an index is out of range, or ``node`` is not a list or mapping.
    """
    where = _join_path(parents)
    if isinstance(part, int):
        if not isinstance(node, list):
            raise _NoSuchPathError(f"{where} is not a list")
        if part >= len(node):
            raise _NoSuchPathError(f"{where} has no entry [{part}]; its length is {len(node)}")
        return node[part]
    if not isinstance(node, dict):
        raise _NoSuchPathError(f"{where} is not a mapping, so {part} cannot be set in it")
    return node.get(part, _MISSING)


def _created_positions(
    parts: Sequence[str | int], span: Span, values: dict[str, Span]
) -> dict[str, Span]:
    """Return (spec path -> span) of the parent mappings that an override created.

    These are the parents of the path ``parts`` that ``values`` does not contain. Their position is
    ``span``, the position of the override.
    """
    parents = (_join_path(parts[:depth]) for depth in range(1, len(parts)))
    return {path: span for path in parents if path not in values}


def _remove_spans(table: dict[str, Span], where: str) -> None:
    """Remove the entries of the spec path ``where`` and of all paths below it from ``table``."""
    for path in [path for path in table if path == where or is_path_below(path, where)]:
        del table[path]


def is_path_below(path: str, where: str) -> bool:
    """Return True if the spec path ``path`` is a key or an entry below ``where``."""
    return path.startswith((f"{where}.", f"{where}["))


def copy_tree(value: Any) -> Any:
    """Return a copy of a plain tree in which no two places share a mapping or a list."""
    if isinstance(value, dict):
        return {key: copy_tree(inner) for key, inner in value.items()}
    return [copy_tree(inner) for inner in value] if isinstance(value, list) else value
