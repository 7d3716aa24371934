"""Fragments of a spec as YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.topology.readers.fragment import Fragment
from parc.compiler.topology.readers.racks import cluster_of

WIDTH = 96
LONGEST_NOTE = 4000
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_ORDER = ("name", "model", "cluster", "job", "layout", "launch")


def fragment_tree(fragment: Fragment, sink: Sink) -> dict[str, Any]:
    """Return the sections of the fragment in the order of a spec, with hosts as racks."""
    tree = dict(fragment.spec)
    if fragment.hosts or "cluster" in tree:
        tree["cluster"] = cluster_of(fragment, sink)[0]
    first = {key: tree[key] for key in _ORDER if key in tree}
    return {**first, **tree}


def fragment_json(fragment: Fragment, sink: Sink) -> dict[str, Any]:
    """Return the sections and notes of the fragment as JSON types."""
    return {"format": 1, "spec": fragment_tree(fragment, sink), "notes": _notes(fragment)}


def fragment_yaml(fragment: Fragment, kind: str, sink: Sink) -> str:
    """Return YAML text: notes as comments, then the sections."""
    tree = fragment_tree(fragment, sink)
    notes = [f"parc import {kind}", *_notes(fragment)]
    head = [f"# {_comment(note)}" for note in notes]
    return "\n".join([*head, *_lines(tree, "")]) + "\n"


def _notes(fragment: Fragment) -> list[str]:
    """Return the notes of the readers, and one more if the places of hosts are unknown."""
    placeless = fragment.hosts and not any(host.path for host in fragment.hosts)
    text = "no file shows which hosts share a switch: all are listed as one rack"
    return [*fragment.notes, *([text] if placeless else [])]


def _comment(note: str) -> str:
    """Return ``note`` as one line of characters that YAML allows in a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in note)[:LONGEST_NOTE]


def _lines(tree: Mapping[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in tree.items():
        name = f"{indent}{_scalar(str(key))}:"
        flow = f"{name} {_flow(value)}"
        short = len(flow) <= WIDTH and not _is_section(key, value, indent)
        if short or not isinstance(value, dict | list) or not value:
            lines.append(flow)
        elif isinstance(value, dict):
            lines += [name, *_lines(value, f"{indent}  ")]
        else:
            lines += [name, *(f"{indent}  - {_flow(item)}" for item in value)]
    return lines


def _is_section(key: str, value: Any, indent: str) -> bool:
    """Return True for sections of a spec and lists of mappings, which are written as blocks."""
    mappings = isinstance(value, list) and any(isinstance(item, dict) for item in value)
    return (not indent and isinstance(value, dict)) or mappings


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_scalar(str(key))}: {_flow(inner)}" for key, inner in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(_flow(item) for item in value)}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
