"""Format a spec fragment, the result of ``parc import``, as YAML or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parc.compiler.diagnostics import Sink
from parc.compiler.diagnostics.flow_yaml import flow_text, scalar_text
from parc.compiler.topology.readers.cluster_section import cluster_section
from parc.compiler.topology.readers.reader_state import Fragment

WIDTH = 96
LONGEST_NOTE = 4000
_SPEC_ORDER = ("parc", "name", "model", "cluster", "job", "goals", "layout", "launch", "emit")
_ORDER = ("name", "model", "cluster", "job", "layout", "launch")


def fragment_tree(fragment: Fragment, sink: Sink) -> dict[str, Any]:
    """Return the sections of the fragment in the usual order of a spec.

    The hosts in section ``cluster`` are grouped by rack.
    """
    tree = dict(fragment.spec)
    if fragment.whole:
        return {**{key: tree[key] for key in _SPEC_ORDER if key in tree}, **tree}
    if fragment.hosts or "cluster" in tree:
        tree["cluster"] = cluster_section(fragment, sink)[0]
    first = {key: tree[key] for key in _ORDER if key in tree}
    return {**first, **tree}


def fragment_json(fragment: Fragment, sink: Sink) -> dict[str, Any]:
    """Return the document of ``parc import --format json``: sections and notes of the fragment."""
    return {"format": 1, "spec": fragment_tree(fragment, sink), "notes": _all_notes(fragment)}


def fragment_yaml(fragment: Fragment, kind: str, sink: Sink) -> str:
    """Return the fragment as YAML: its notes as comments, then its sections.

    ``kind`` is the format of the imported files, for the first comment.
    """
    tree = fragment_tree(fragment, sink)
    notes = [f"parc import {kind}", *_all_notes(fragment)]
    head = [f"# {_comment_text(note)}" for note in notes]
    return "\n".join([*head, *block_lines(tree, "")]) + "\n"


def _all_notes(fragment: Fragment) -> list[str]:
    """Return the notes of the file readers, and a note if no file shows the racks of the hosts."""
    placeless = fragment.hosts and not any(host.path for host in fragment.hosts)
    text = "no file shows which hosts share a switch: all hosts are listed as one rack"
    return [*fragment.notes, *([text] if placeless else [])]


def _comment_text(note: str) -> str:
    """Return ``note`` on one line, with spaces for characters that YAML forbids in comments."""
    return "".join(letter if letter.isprintable() else " " for letter in note)[:LONGEST_NOTE]


def block_lines(tree: Mapping[str, Any], indent: str) -> list[str]:
    """Return the lines of ``tree`` as YAML, each after ``indent``; short values are on one line."""
    lines = []
    for key, value in tree.items():
        name = f"{indent}{scalar_text(str(key))}:"
        flow = f"{name} {flow_text(value)}"
        short = len(flow) <= WIDTH and not _is_section(key, value, indent)
        if short or not isinstance(value, dict | list) or not value:
            lines.append(flow)
        elif isinstance(value, dict):
            lines += [name, *block_lines(value, f"{indent}  ")]
        else:
            lines += [name, *(f"{indent}  - {flow_text(item)}" for item in value)]
    return lines


def _is_section(key: str, value: Any, indent: str) -> bool:
    """Return True if ``value`` is a top-level section of a spec, or a list of mappings.

    Such values are written in YAML's block style even if they fit on one line.
    """
    mappings = isinstance(value, list) and any(isinstance(item, dict) for item in value)
    return (not indent and isinstance(value, dict)) or mappings
