"""Edits of the text of a spec: overrides change single entries, and all other lines stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.spec.override import PLAIN_KEY, Path, apply_overrides, split_path
from parc.compiler.spec.reading.yaml_tree import read_tree
from parc.compiler.spec.rename_key import rename_in_text

_ITEM_START = re.compile(r"[ ]*(?:-[ ]+)?")


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
    written = [key if PLAIN_KEY.fullmatch(key) else json.dumps(key) for key in keys]
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
