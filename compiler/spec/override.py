"""Overrides of spec values: ``--set PATH=VALUE`` and ``--set ~PATH``; ``~PATH=KEY`` renames a key.

``apply_overrides`` changes the tree of a spec before validation; ``edit_text`` changes its text, so
that all other lines and comments stay unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from parc.compiler.diagnostics import Finding, Sink, Span, SpecPositions
from parc.compiler.spec.reading.tree_builder import join_path
from parc.compiler.spec.reading.yaml_tree import SpecTree, read_tree
from parc.compiler.spec.rename_key import rename_in_mapping, rename_in_text, rename_spans

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
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")
_ITEM_START = re.compile(r"[ ]*(?:-[ ]+)?")


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
        if removes and not parts and old and _PLAIN_KEY.fullmatch(new_key):
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


def edit_text(text: str, overrides: Sequence[str]) -> str | None:
    """Return the YAML ``text`` with ``overrides`` (``PATH=VALUE``, ``~PATH``) written into it.

    Returns None if this function cannot express an override as an edit of a few characters. The
    edited text is read again, and its values are compared with those of ``apply_overrides``, so
    that an edit that changes anything else (for example through an alias) is never returned.
    """
    sink = Sink()
    before = read_tree(text, "", sink)
    if before is None:
        return None
    wanted = apply_overrides(before, overrides, sink)
    if sink.failed():
        return None
    edited: str | None = text
    for override in _renames_in_place(overrides):
        edited = None if edited is None else _apply_override(edited, override)
    after = None if edited is None else read_tree(edited, "", sink)
    same = after is not None and not sink.failed() and after.value == wanted.value
    return edited if same else None


def _renames_in_place(overrides: Sequence[str]) -> Iterator[str]:
    """Yield ``overrides``; a removal before a setting of the same mapping becomes a renaming.

    ``~job.sequence_lenght`` and ``job.sequence_length=4096`` become the renaming of the key and the
    setting, so that the entry keeps its place and its comment.
    """
    for number, override in enumerate(overrides):
        old = split_path(override[1:]) if override.startswith("~") and "=" not in override else []
        following = overrides[number + 1].partition("=")[0] if number + 1 < len(overrides) else ""
        new = split_path(following)
        is_renamed = bool(old and new) and old[:-1] == new[:-1] and isinstance(old[-1], str)
        yield f"{override}={new[-1]}" if is_renamed else override


def _apply_override(text: str, override: str) -> str | None:
    from ruamel.yaml import YAML

    path, equals, value = override.removeprefix("~").partition("=")
    parts = split_path(path)
    # Nodes have character offsets; the round-trip mode of ruamel.yaml would reformat other lines.
    root = YAML(typ="safe", pure=True).compose(text)
    nodes = _nodes_on_path(root, parts)
    missing = parts[len(nodes) - 1 :]
    if override.startswith("~") and equals:
        return None if missing else rename_in_text(text, nodes[-2], str(parts[-1]), value)
    if override.startswith("~"):
        # An absent value needs no edit.
        return text if missing else _remove_entry(text, nodes[-2], parts[-1])
    if not missing:
        new = YAML(typ="safe", pure=True).compose(value)
        both = [(one.id, one.tag, one.value) for one in (nodes[-1], new) if one is not None]
        same = nodes[-1].id == "scalar" and both[0] == both[-1]
        return text if same else _replace_value(text, nodes[-1], value)
    if any(isinstance(part, int) for part in missing):
        return None
    return _insert_entry(text, nodes[-1], [str(part) for part in missing], value)


def _nodes_on_path(root: Any, parts: Path) -> list[Any]:
    """Return the nodes from ``root`` to the last existing node on the path ``parts``."""
    nodes = [root]
    for part in parts:
        index = _entry_index(nodes[-1], part)
        if index is None:
            break
        entry = nodes[-1].value[index]
        nodes.append(entry[1] if isinstance(entry, tuple) else entry)
    return nodes


def _entry_index(node: Any, part: str | int) -> int | None:
    """Return the index of key or list index ``part`` in the entries of ``node``; None if absent."""
    if node.id == "mapping":
        keys = [key.value for key, _ in node.value]
        return keys.index(part) if part in keys else None
    valid = node.id == "sequence" and isinstance(part, int) and part < len(node.value)
    return int(part) if valid else None


def _end_offset(text: str, node: Any) -> int:
    """Return the offset behind the last character of ``node``, without comments after the node."""
    # A block collection ends at the next token, after blank lines and comments.
    if node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_offset(text, last[1] if isinstance(last, tuple) else last)
    start: int = node.start_mark.index
    return start + len(text[start : node.end_mark.index].rstrip())


def _replace_value(text: str, node: Any, value: str) -> str:
    start = node.start_mark.index
    space = "" if text[start - 1 : start].isspace() or text[start - 1 : start] in "[{" else " "
    return text[:start] + space + value + text[_end_offset(text, node) :]


def _insert_entry(text: str, node: Any, keys: Sequence[str], value: str) -> str | None:
    """Return ``text`` with the new entry ``keys[0]`` in the mapping ``node``.

    Further keys become nested mappings. A scalar (the name of a catalog entry, or null) becomes a
    mapping, as in ``apply_overrides``.
    """
    written = [key if _PLAIN_KEY.fullmatch(key) else json.dumps(key) for key in keys]
    for key in reversed(written[1:]):
        value = f"{{{key}: {value}}}"
    entry = f"{written[0]}: {value}"
    if node.id == "sequence":
        return None
    if node.id == "scalar":
        name = text[node.start_mark.index : _end_offset(text, node)]
        base = f"base: {name}, " if name and name not in ("null", "~") else ""
        return _replace_value(text, node, f"{{{base}{entry}}}")
    if not node.value:
        return _replace_value(text, node, f"{{{entry}}}")
    at = _end_offset(text, node.value[-1][1])
    if node.flow_style:
        return f"{text[:at]}, {entry}{text[at:]}"
    at = _line_end(text, at)
    newline = "\r\n" if "\r\n" in text else "\n"
    # The line break is part of the line end that stays, so a text without a final one stays so.
    at -= text[:at].endswith("\r")
    return f"{text[:at]}{newline}{' ' * node.start_mark.column}{entry}{text[at:]}"


def _remove_entry(text: str, node: Any, part: str | int) -> str | None:
    """Return ``text`` without the entry ``part`` of the mapping or list ``node``."""
    index = _entry_index(node, part)
    if index is None:
        return None
    pairs = [entry if isinstance(entry, tuple) else (entry, entry) for entry in node.value]
    starts = [key.start_mark.index for key, _ in pairs]
    ends = [_end_offset(text, value) for _, value in pairs]
    if len(pairs) == 1:
        return _remove_only_entry(text, node, ends[0])
    last = index == len(pairs) - 1
    line = text.rfind("\n", 0, starts[index]) + 1
    if not node.flow_style and _starts_line(text[line : starts[index]], part):
        return text[:line] + text[_line_end(text, ends[index]) + 1 :]
    if not last:
        return text[: starts[index]] + text[starts[index + 1] :]
    return text[: ends[index - 1]] + text[ends[index] :] if node.flow_style else None


def _starts_line(before: str, part: str | int) -> bool:
    """Return True if only spaces, and the dash of a list entry, precede the entry on its line."""
    return not before.strip() if isinstance(part, str) else bool(_ITEM_START.fullmatch(before))


def _remove_only_entry(text: str, node: Any, end: int) -> str:
    """Return ``text`` with the only entry of ``node``, which ends at ``end``, removed."""
    brackets = "{}" if node.id == "mapping" else "[]"
    start = node.start_mark.index
    if node.flow_style:
        return text[:start] + brackets + text[_end_offset(text, node) :]
    # `layout: {}` on one line, unless a comment stands between the key and the entry.
    above = text[:start].rstrip("- \r\n")
    return (
        f"{above} {brackets}{text[end:]}"
        if above.endswith(":")
        else (f"{text[:start]}{brackets}{text[end:]}")
    )


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found
